"""Which attention backend runs, and why not a faster one."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ostinato.errors import UsageError
from ostinato.llm.attention.sdpa import SdpaAttention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostinato.llm.attention.base import AttentionBackend, AttentionShape

# Fastest first.
BACKENDS = ("flashinfer", "triton", "sdpa")
# What the Triton kernels are written for.
_LARGEST_HEAD, _LARGEST_GROUP = 256, 64
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_OLDEST = (8, 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen.

    Attributes:
        name: The backend that runs.
        reasons_against: Why each faster one does not, by name.
    """

    name: str
    reasons_against: Mapping[str, str]


def choose(
    shape: AttentionShape,
    *,
    device: torch.device,
    dtype: torch.dtype,
    wanted: str = "auto",
    is_invariant: bool | None = None,
) -> tuple[AttentionBackend, Choice]:
    """Return the fastest backend that can run here, or the one `wanted` by name.

    Args:
        is_invariant: Whether a token's bits must not depend on its company; None: on a CPU in
            float32 they do not, elsewhere they may.

    Raises:
        UsageError: OST5211, `wanted` is no backend or cannot run here.
    """
    reasons = {
        "flashinfer": _reason_against_flashinfer(device),
        "triton": _reason_against_triton(shape, device, dtype),
    }
    if wanted not in ("auto", *BACKENDS):
        raise _refusal(f"there is no attention backend {wanted!r}")
    if reason := reasons.get(wanted):
        raise _refusal(f"the attention backend {wanted!r} cannot run: {reason}")
    able = [name for name in BACKENDS if not reasons.get(name)]
    name = able[0] if wanted == "auto" else wanted
    faster = BACKENDS[: BACKENDS.index(name)]
    against = {
        other: f"{wanted} was asked for" if wanted != "auto" else reasons[other] or ""
        for other in faster
    }
    if is_invariant is None:
        is_invariant = device.type == "cpu" and dtype == torch.float32
    if name == "triton":
        return _triton(shape, device, dtype, is_invariant=is_invariant), Choice(name, against)
    return SdpaAttention(shape, in_blocks=is_invariant), Choice(name, against)


def _triton(
    shape: AttentionShape, device: torch.device, dtype: torch.dtype, *, is_invariant: bool
) -> AttentionBackend:
    # Imported only here: importing triton takes time, and not every machine has it.
    from ostinato.llm.attention.triton_attention import TritonAttention

    return TritonAttention.on(shape, device=device, dtype=dtype, is_invariant=is_invariant)


def _reason_against_flashinfer(device: torch.device) -> str | None:
    if device.type != "cuda":
        return _not_on(device)
    # Its decode step is planned on the host before every step. Here several steps are queued at
    # once, and how long each row is by then only the device knows.
    return "it plans every step on the host, from lengths that only the device knows here"


def _reason_against_triton(
    shape: AttentionShape, device: torch.device, dtype: torch.dtype
) -> str | None:
    if device.type != "cuda":
        return _not_on(device)
    if shape.head_dim % 16 or shape.head_dim > _LARGEST_HEAD:
        return f"its heads have a multiple of 16 up to {_LARGEST_HEAD}, not {shape.head_dim}"
    if shape.group > _LARGEST_GROUP:
        return f"at most {_LARGEST_GROUP} query heads share keys there, here {shape.group} do"
    if dtype not in _DTYPES:
        return f"it computes in bfloat16, float16 and float32, not in {str(dtype)[6:]}"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        return (
            f"it needs compute capability 8.0, and the device has {capability[0]}.{capability[1]}"
        )
    return None


def _not_on(device: torch.device) -> str:
    return f"it needs a CUDA device, and the model is on {device.type}"


def _refusal(problem: str) -> UsageError:
    return UsageError(
        problem, code="OST5211", remedy=f"choose auto or one of {', '.join(BACKENDS)}"
    )
