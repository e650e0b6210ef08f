"""Activations inside kernels, by the names that configs have for them."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

KNOWN = ("silu", "swish", "relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")


@triton.jit
def activate(x: tl.tensor, NAME: tl.constexpr) -> Any:
    """Return the activation of `x`, which is float32."""
    if NAME == "relu":
        return tl.maximum(x, 0.0)
    elif NAME == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif NAME == "silu" or NAME == "swish":
        return x * tl.sigmoid(x)
    else:  # 0.5 (1 + tanh(a)) is the sigmoid of 2 a
        return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
