"""What autocast for CUDA does to a call, done by hand.

torch's own autocast asks the device of each tensor in C++, which is told that pretended tensors
lie on the CPU, and then leaves them alone. So the casts are made here, at the calls that kernels
answer. The lists are those of torch's documentation ("CUDA Op-Specific Behavior"), by the names of
the aten calls that these functions end in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import base_name

_LOWER = frozenset(
    {
        "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d",
        "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "convolution", "_convolution", "einsum", "gru_cell", "linear", "linalg_vecdot",
        "lstm_cell", "matmul", "mm", "mv", "_prelu_kernel", "prelu", "rnn_relu_cell",
        "rnn_tanh_cell", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
        "_cudnn_rnn", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
    }
)  # fmt: skip
_FULL = frozenset(
    {
        "acos", "asin", "binary_cross_entropy_with_logits", "cdist", "_cdist_forward",
        "cosh", "cosine_similarity", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1",
        "native_group_norm", "group_norm", "hinge_embedding_loss", "huber_loss", "kl_div",
        "l1_loss", "layer_norm", "native_layer_norm", "log", "log10", "log1p", "log2",
        "_log_softmax", "log_softmax", "logsumexp", "mse_loss", "nll_loss_forward",
        "norm", "linalg_vector_norm", "linalg_matrix_norm", "pdist", "_pdist_forward", "pow",
        "prod", "reciprocal", "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss",
        "_softmax", "softmax", "softmin", "softplus", "sum", "tan",
    }
)  # fmt: skip


def cast_as_autocast(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments as autocast hands them to the kernel."""
    if func.namespace != "aten":
        return args, kwargs
    name = base_name(func)
    if name in _LOWER:
        lower = torch.get_autocast_dtype("cuda")
        return _cast(args, _to(lower)), _cast(kwargs, _to(lower))
    if name in _FULL and kwargs.get("dtype") is None:
        return _cast(args, _to(torch.float32)), _cast(kwargs, _to(torch.float32))
    return args, kwargs


def _to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    def cast(tensor: Tensor) -> Tensor:
        is_eligible = (
            tensor.device.type == "cuda"
            and tensor.is_floating_point()
            and tensor.dtype not in (torch.float64, dtype)
        )
        return tensor.to(dtype) if is_eligible else tensor

    return cast


def _cast(value: Any, cast: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return cast(value)
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, cast) for item in value)
    if isinstance(value, dict):
        return {name: _cast(item, cast) for name, item in value.items()}
    return value
