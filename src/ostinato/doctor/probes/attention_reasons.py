"""Which attention kernels there are, and why one cannot run: a table, and rules over plain facts.

torch says why only on a GPU, and only for some of its checks; the same rules hold on paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ostinato.doctor.graph_use import AttentionUse

KERNELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Turing": ("efficient", "math"),  # 7.5: flash attention 2 needs 8.0
        "Ampere": ("flash", "efficient", "cudnn", "math"),  # 8.0, 8.6, 8.7
        "Ada": ("flash", "efficient", "cudnn", "math"),  # 8.9
        "Hopper": ("cudnn", "flash", "efficient", "math"),  # 9.0: cudnn's is the fastest there
        "Blackwell": ("cudnn", "flash", "efficient", "math"),  # 10.0, 12.0
    }
)
"""Backends by architecture, the usually fastest first."""

_HALF = ("float16", "bfloat16")
_LARGEST_HEAD = 256


def architecture(capability: str) -> str:
    """Return "Hopper" for "9.0"; empty where it is not known."""
    major, _, minor = capability.partition(".")
    if major == "8":
        return "Ada" if minor == "9" else "Ampere"
    return {"7": "Turing", "9": "Hopper", "10": "Blackwell", "12": "Blackwell"}.get(major, "")


def why_not_flash(use: AttentionUse) -> tuple[str, ...]:
    """Return every reason for which flash attention refuses; empty if it takes these arguments."""
    reasons = [*_forbidden(use, "flash")]
    if use.device == "cuda":
        reasons += _on_a_gpu(use)
    else:
        reasons += _on_a_cpu(use)
    return tuple(reasons)


def _forbidden(use: AttentionUse, backend: str) -> list[str]:
    if use.only and backend not in use.only:
        return [f"the program allows {', '.join(use.only)} alone"]
    return []


def _on_a_gpu(use: AttentionUse) -> list[str]:
    reasons = []
    if use.dtype not in _HALF:
        reasons.append(f"dtype is {use.dtype}, and it takes float16 and bfloat16")
    size = use.query[-1]
    if size > _LARGEST_HEAD:
        reasons.append(f"head size is {size}, and it takes up to {_LARGEST_HEAD}")
    if size != use.value_size:
        reasons.append(f"the value's head size is {use.value_size}, the query's {size}")
    if use.mask is not None:
        reasons.append("there is an attn_mask, and it takes is_causal only")
    if use.strides and use.strides[-1] != 1:
        reasons.append(f"the last dimension's stride is {use.strides[-1]}, and it takes 1")
    if use.capability and architecture(use.capability) == "Turing":
        reasons.append("the architecture is Turing, and it needs Ampere")
    if not use.gqa and use.query[1] != use.key[1]:
        reasons.append("query and key have different heads, and enable_gqa is not set")
    return reasons


def _on_a_cpu(use: AttentionUse) -> list[str]:
    reasons = []
    if use.dropout > 0:
        reasons.append(f"dropout is {use.dropout:g}, and it takes none")
    if use.query[-1] != use.value_size:
        reasons.append(f"the value's head size is {use.value_size}, the query's {use.query[-1]}")
    if use.mask_grad:
        reasons.append("attn_mask wants a gradient")
    if use.mask_dtype and use.mask_dtype not in ("bool", use.dtype):
        reasons.append(f"attn_mask is {use.mask_dtype}, the query {use.dtype}")
    if use.strides and use.strides[-1] != 1:
        reasons.append(f"the last dimension's stride is {use.strides[-1]}, and it takes 1")
    if use.mask is not None and use.causal:
        reasons.append("attn_mask and is_causal are both given")
    return reasons
