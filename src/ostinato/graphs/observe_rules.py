"""Which aten calls a recording cannot hold, and why.

By rule, not by list: what matters is what a call returns, what its tags say and between which
devices it moves data. Used for every call of a run, on a CPU and on a GPU alike, so that the tape
refuses on a laptop what a CUDA graph refuses on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import base_name
from ostinato.graphs.reasons import Reason

Verdict = tuple[Reason, str]  # why not, and one plain sentence

# Calls that answer from a tensor's shape, type or place, never from its values.
_METADATA_PREFIXES = ("sym_", "is_", "_is_", "_use_", "_has_", "q_", "_debug_", "_nested_get")
_METADATA = frozenset(
    (
        "size",
        "stride",
        "storage_offset",
        "numel",
        "dim",
        "get_device",
        "_version",
        "retains_grad",
        "output_nr",
        "result_type",
        "can_cast",
        "promote_types",
        "_fused_sdp_choice",
        "cudnn_is_acceptable",
        "dense_dim",
        "sparse_dim",
        "_dimI",
        "_dimV",
        "_nnz",
        "qscheme",
    )
)
_MASK_DTYPES = (torch.bool, torch.uint8)
_COPIES = frozenset(("_to_copy", "copy", "copy_", "_foreach_copy_", "_copy_from", "lift_fresh"))
_STORAGE_CHANGES = frozenset(("set_", "resize_", "resize_as_", "resize", "_resize_output_"))


def verdict(
    func: OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    read: Sequence[Tensor],
    written: Sequence[Tensor],
) -> Verdict | None:
    """Return why a recording cannot hold this call, or None if it can.

    Args:
        read: Tensors that the call takes and does not write.
        written: Tensors that it writes or returns.
    """
    return (
        (_of_the_call_alone(func) if read or written else None)
        or _dynamic_shape(func, args, kwargs)
        or _among_processes(args, (*read, *written))
        or _unusual_tensor((*read, *written))
        or _moved(func, read, written)
        or _pinned(func, kwargs)
    )


@cache
def _of_the_call_alone(func: OpOverload) -> Verdict | None:
    """What the schema and the tags of a call say, whatever its arguments."""
    if base_name(func) in _STORAGE_CHANGES:
        return Reason.CAPTURE_ERROR, "a tensor's memory is exchanged or resized in place"
    returns = func._schema.returns
    answers_in_python = bool(returns) and all("Tensor" not in str(r.type) for r in returns)
    is_read = answers_in_python and not is_metadata(func)
    if is_read or torch.Tag.data_dependent_output in func.tags:
        return Reason.HOST_SYNC, "a tensor's value is read by Python, so the host waits for it"
    return None


@cache
def exchanges_memory(func: OpOverload) -> bool:
    """Whether the call gives its tensor other memory, or another window on it, in place."""
    return base_name(func) in _STORAGE_CHANGES or base_name(func) == "as_strided_"


def opaque(func: object) -> tuple[Reason, str, str]:
    """Return reason, name and sentence for a call that is no aten call, such as `torch.cond`."""
    name = str(func)
    is_compiled = "inductor" in name or "compiled" in name
    reason = Reason.COMPILED_INSIDE if is_compiled else Reason.CAPTURE_ERROR
    return reason, name, "what happens inside it cannot be seen as aten calls"


@cache
def is_metadata(func: OpOverload) -> bool:
    """Whether the call only asks for a shape, a type or a place."""
    name = base_name(func)
    if name == "is_nonzero":
        return False
    return name in _METADATA or name.startswith(_METADATA_PREFIXES)


def _dynamic_shape(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Verdict | None:
    name = base_name(func)
    if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
        dynamic = _has_mask(args[1]) and not _is_masked_fill(args)
        detail = "a boolean mask picks elements, so the shape depends on values"
    elif name == "repeat_interleave":
        dynamic = kwargs.get("output_size") is None
        detail = "without output_size= the number of repeats is read from a tensor"
    else:
        dynamic = torch.Tag.dynamic_output_shape in func.tags
        detail = "the shape of the result depends on values"
    return (Reason.DATA_DEPENDENT_SHAPE, detail) if dynamic else None


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in _MASK_DTYPES for index in indices)


def _is_masked_fill(args: Sequence[Any]) -> bool:
    """`x[mask] = number` is run as masked_fill, whose shapes are fixed."""
    if len(args) < 3:
        return False
    _, indices, value, *accumulate = args
    given = [index for index in indices if index is not None]
    return (
        len(given) == 1
        and value.numel() == 1
        and value.device.type == "cpu"
        and not any(accumulate[:1])
    )


def _unusual_tensor(tensors: Sequence[Tensor]) -> Verdict | None:
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            return Reason.CAPTURE_ERROR, f"a {str(tensor.layout)[6:]} tensor has no fixed memory"
        if tensor.is_nested or tensor.is_quantized:
            return Reason.CAPTURE_ERROR, "nested and quantized tensors cannot be recorded"
    return None


def _moved(func: OpOverload, read: Sequence[Tensor], written: Sequence[Tensor]) -> Verdict | None:
    if len({t.device for t in (*read, *written)}) < 2:
        return None
    is_copy = base_name(func) in _COPIES
    # A number that lives in a 0-dim CPU tensor is passed to a kernel by value.
    sources = {t.device for t in read if is_copy or t.ndim or t.device.type != "cpu"}
    # Attention kernels return the seed of their dropout: a number or two that the host made.
    targets = {t.device for t in written if is_copy or t.numel() > 2 or t.device.type != "cpu"}
    for source in sources:
        for target in targets:
            if found := moved(source, target):
                return found
    places = {d for d in sources | targets if d.type not in ("cpu", "meta")}
    if len(places) > 1:
        return Reason.SEVERAL_DEVICES, f"one call works on {_listed(places)}"
    return None


def moved(source: torch.device, target: torch.device) -> Verdict | None:
    """Return why data cannot go from `source` to `target` inside a recording, or None if it can."""
    if source == target or "meta" in (source.type, target.type):
        return None
    if target.type == "cpu":
        return Reason.HOST_SYNC, f"a tensor is copied from {source} to the host, which waits for it"
    if source.type == "cpu":
        return Reason.HOST_COPY, f"host memory is copied to {target}; a replay would copy it stale"
    return Reason.SEVERAL_DEVICES, f"a tensor is copied from {source} to {target}"


def _among_processes(args: Sequence[Any], tensors: Sequence[Tensor]) -> Verdict | None:
    """A collective takes its process group as an object; NCCL's are kernels, Gloo's are not."""
    is_collective = any(isinstance(arg, torch.ScriptObject) for arg in args)
    if is_collective and any(tensor.device.type == "cpu" for tensor in tensors):
        return Reason.CAPTURE_ERROR, "on the CPU the host itself exchanges data with others"
    return None


def _pinned(func: OpOverload, kwargs: dict[str, Any]) -> Verdict | None:
    if kwargs.get("pin_memory") or base_name(func) in ("pin_memory", "_pin_memory"):
        return Reason.HOST_COPY, "pinned host memory is made inside the step"
    return None


def _listed(devices: Iterable[torch.device]) -> str:
    return " and ".join(sorted(str(device) for device in devices))
