"""Settings and modes round a call: those that belong in its key, those that no replay can serve.

`fitting.py` asks on every call. Each setting is one read in C, because a call has few
microseconds; what a memo sees by itself (dispatch modes, `torch.func`) is looked for beside the
path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ostinato.graphs.signature import Mode

_CPU = torch.device("cpu")

_flash = torch._C._get_flash_sdp_enabled
_efficient = torch._C._get_mem_efficient_sdp_enabled
_math = torch._C._get_math_sdp_enabled
_cudnn_attention = torch._C._get_cudnn_sdp_enabled
_cudnn = torch._C._get_cudnn_enabled
_benchmark = torch._C._get_cudnn_benchmark
_deterministic = torch._C._get_cudnn_deterministic
_function_modes = torch._C._len_torch_function_stack


_ATTENTION = 4
"""So many of the settings that `ambient` reads are those of attention; they come first."""


def _ambient_on_cpu() -> tuple[Any, ...]:
    return (_flash(), _efficient(), _math(), _cudnn_attention(), forward_ad._current_level)


def _ambient_on_cuda() -> tuple[Any, ...]:
    return (
        _flash(), _efficient(), _math(), _cudnn_attention(), forward_ad._current_level,
        _cudnn(), _benchmark(), _deterministic(), _convolution_precision(),
    )  # fmt: skip


ambient = _ambient_on_cuda if torch.backends.cuda.is_built() else _ambient_on_cpu
"""Read what a memo's own guards do not see: kernels of attention, forward-mode level, cuDNN.

On one core of a server CPU it takes 0.12 us, with cuDNN 0.25 us (November 2026).
"""


def ambient_one_by_one() -> tuple[list[object], tuple[object, ...]]:
    """Return what `ambient` reads as `recalls` takes it: (function, answer, ...) and places.

    Asked from C, each costs a call of torch's own function, and neither a frame nor a tuple.
    """
    asked: list[Callable[[], object]] = [_flash, _efficient, _math, _cudnn_attention]
    if ambient is _ambient_on_cuda:
        asked += [_cudnn, _benchmark, _deterministic, _convolution_question()]
    settings = [part for ask in asked for part in (ask, ask())]
    return settings, (vars(forward_ad), "_current_level", forward_ad._current_level)


def _convolution_question() -> Callable[[], object]:
    try:
        torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        return _convolution_precision
    return torch._C._get_cudnn_allow_tf32


def read_mode() -> Mode:
    """Read the settings of this thread and process that change what a run computes."""
    now = ambient()
    return Mode(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        _autocast(),
        torch.get_default_dtype(),
        _matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        default_device(),
        (
            torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        ),
        now[:_ATTENTION],
        now[_ATTENTION + 1 :],
    )


def mode_around() -> str | None:
    """Say which mode is entered that sees or transforms each operation; None if there is none.

    A replay has no operations for it to see, and no tangents.
    """
    if torch._C._len_torch_dispatch_stack():
        return f"inside {type(_get_current_dispatch_mode_stack()[-1]).__name__}, a dispatch mode"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "inside a transform of torch.func, such as vmap or grad"
    if forward_ad._current_level >= 0:
        return "inside forward_ad.dual_level(), which computes tangents"
    if _function_modes():
        for mode in _get_current_function_mode_stack():
            if not isinstance(mode, DeviceContext):
                return f"inside {type(mode).__name__}, a function mode"
    return None


def default_device() -> torch.device | None:
    """Return where this thread makes tensors, as `torch.get_default_device()`, but at once.

    None inside a function mode that is none of a device: it may do anything.
    """
    # Whoever sets it does so through a function mode, so without modes it is the CPU.
    if not _function_modes():
        return _CPU
    if all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack()):
        return torch.get_default_device()
    return None


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set by torch's newer names, which the older question does not mix with
        return str(torch._C._get_fp32_precision_getter("cuda", "matmul"))


def _convolution_precision() -> object:
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        return torch._C._get_fp32_precision_getter("cuda", "conv")


def _autocast() -> tuple[tuple[str, Any], ...]:
    # Asked per device: torch.is_autocast_enabled() without a device speaks of CUDA alone.
    on_cpu = torch.is_autocast_enabled("cpu")
    on_cuda = torch.is_autocast_enabled("cuda")
    if not (on_cpu or on_cuda):
        return ()
    return tuple(
        (kind, torch.get_autocast_dtype(kind))
        for kind, on in (("cpu", on_cpu), ("cuda", on_cuda))
        if on
    )
