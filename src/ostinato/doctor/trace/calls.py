"""Which names in a trace launch, wait or copy. Pure.

CUPTI names calls of the runtime and of the driver; Nsight Systems adds the version of the call's
form, as in "cudaLaunchKernel_v7000".
"""

from __future__ import annotations

import re
from functools import lru_cache

from ostinato.doctor.activity import WaitKind

_VERSION = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
_LAUNCHES = (
    "cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC", "cuLaunchKernel",
    "cuLaunchKernelEx", "cuLaunchCooperativeKernel",
)  # fmt: skip
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
_WAITS = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize",
    "cuStreamSynchronize", "cuEventSynchronize", "cudaMemcpy", "cudaMemcpy2D", "cuMemcpyDtoH",
    "cuMemcpyHtoD",
)  # fmt: skip
_COPIES = ("cudaMemcpyAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cudaMemcpy",
           "cudaMemcpy2DAsync", "cuMemcpyAsync")  # fmt: skip

READS: dict[str, tuple[WaitKind, str]] = {
    "aten::item": (WaitKind.SCALAR, "Tensor.item"),
    "aten::_local_scalar_dense": (WaitKind.SCALAR, "Tensor.item"),
    "aten::is_nonzero": (WaitKind.SCALAR, "bool(tensor)"),
    "aten::equal": (WaitKind.SCALAR, "torch.equal"),
    "aten::nonzero": (WaitKind.SHAPE, "torch.nonzero"),
    "aten::index": (WaitKind.SHAPE, "indexing by a mask"),
    "aten::masked_select": (WaitKind.SHAPE, "torch.masked_select"),
    "aten::_unique2": (WaitKind.SHAPE, "torch.unique"),
    "aten::unique_dim": (WaitKind.SHAPE, "torch.unique"),
    "aten::unique_consecutive": (WaitKind.SHAPE, "torch.unique_consecutive"),
    "aten::repeat_interleave": (WaitKind.SHAPE, "torch.repeat_interleave"),
    "aten::bincount": (WaitKind.SHAPE, "torch.bincount"),
    "aten::_linalg_check_errors": (WaitKind.SCALAR, "the check of torch.linalg"),
    "aten::copy_": (WaitKind.SYNCHRONIZE, "Tensor.copy_"),
    "aten::_to_copy": (WaitKind.SYNCHRONIZE, "Tensor.to"),
}
"""Calls of torch inside which the host waits; a copy's kind follows from its direction."""

ALWAYS_READS = frozenset(name for name in READS if name not in ("aten::copy_", "aten::_to_copy",
                                                                "aten::index"))  # fmt: skip
"""Of these, the ones that wait on a GPU whatever their arguments."""

ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_fused_attention_overrideable": "overrideable",
}


@lru_cache(maxsize=1024)
def plain(name: str) -> str:
    """Return "cudaLaunchKernel" of "cudaLaunchKernel_v7000"."""
    return _VERSION.sub("", name)


def is_launch(name: str) -> bool:
    """Whether a call starts one kernel."""
    return plain(name) in _LAUNCHES


def is_graph_launch(name: str) -> bool:
    """Whether a call starts a whole graph."""
    return plain(name) in _GRAPH_LAUNCHES


def is_wait(name: str) -> bool:
    """Whether the host waits for the device in this call."""
    return plain(name) in _WAITS


def is_copy_call(name: str) -> bool:
    """Whether a call starts a copy."""
    return plain(name) in _COPIES
