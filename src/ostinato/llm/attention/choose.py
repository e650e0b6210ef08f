"""Which attention backend runs, and why not a faster one."""

from __future__ import annotations

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
    reasons = {name: _reason_against(device) for name in BACKENDS if name != "sdpa"}
    if wanted not in ("auto", *BACKENDS):
        raise _refusal(f"there is no attention backend {wanted!r}")
    if wanted in reasons:
        raise _refusal(f"the attention backend {wanted!r} cannot run: {reasons[wanted]}")
    if is_invariant is None:
        is_invariant = device.type == "cpu" and dtype == torch.float32
    against = reasons if wanted == "auto" else dict.fromkeys(reasons, f"{wanted} was asked for")
    return SdpaAttention(shape, in_blocks=is_invariant), Choice("sdpa", against)


def _reason_against(device: torch.device) -> str:
    if device.type != "cuda":
        return f"it needs a CUDA device, and the model is on {device.type}"
    return "this version of Ostinato has no such backend yet"


def _refusal(problem: str) -> UsageError:
    return UsageError(
        problem, code="OST5211", remedy=f"choose auto or one of {', '.join(BACKENDS)}"
    )
