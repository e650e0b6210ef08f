"""By which of two ways a decoder computes its layers, and why not by the faster one.

The fused way is a handful of Triton kernels a layer (`fused.py`); it is for models that are built
as Llama is, in bfloat16, on a GPU. The composable way is torch's own operations, one by one: every
model, every device, every type of numbers, and tokens whose bits do not depend on their company.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from ostinato.llm.models.config import DecoderConfig

_OLDEST = (8, 0)
# Vectors of 16 bytes, and tiles of tensor cores.
_STEP = 16


@dataclass(frozen=True, slots=True)
class DecodePath:
    """The way that a model's layers are computed.

    Attributes:
        name: "fused" or "composable".
        why: Why not the fused way, or what the fused one is made of.
    """

    name: Literal["fused", "composable"]
    why: str


def reason_against_fused(
    config: DecoderConfig, device: torch.device, dtype: torch.dtype, *, is_invariant: bool
) -> str | None:
    """Return why the fused kernels cannot compute this model here; None if they can."""
    if device.type != "cuda":
        return f"the fused kernels need a CUDA device, and the model is on {device.type}"
    if is_invariant:
        return "a token's bits must not depend on its company, and fused products choose by it"
    if dtype != torch.bfloat16:
        return f"the fused kernels compute in bfloat16, and the model is in {str(dtype)[6:]}"
    for what, size in (
        ("hidden size", config.hidden),
        ("MLP", config.inner),
        ("head size", config.head_dim),
    ):
        if size % _STEP:
            return f"the fused kernels take sizes in steps of {_STEP}, and its {what} is {size}"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        return (
            "the fused kernels need compute capability 8.0, and the device has "
            f"{capability[0]}.{capability[1]}"
        )
    return None
