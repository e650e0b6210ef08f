"""Small questions about one aten call: its tensors, what it writes, whether it is a recipe.

Shared by the watcher of a run and by the tape's recorder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload


@cache
def base_name(func: OpOverload) -> str:
    """Return "add" of aten.add.Tensor."""
    return func._schema.name.partition("::")[2]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of an argument or result: aten nests them in lists and tuples only."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def storage_id(tensor: Tensor) -> int:
    """Identify the memory behind a strided tensor, for as long as that memory is alive."""
    return int(tensor.untyped_storage()._cdata)


@cache
def is_recipe(func: OpOverload) -> bool:
    """Whether the call is only a recipe of other aten calls on every device.

    Under no_grad such calls never reach a dispatch mode; in inference mode they do.
    """
    return func._can_decompose() and not torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CPU"
    )


def followed(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the calls of a recipe as an eager run does.

    Torch has recipes in Python beside those in C++, and they differ: that of `dropout` returns a
    copy of its input where the eager one returns the input itself.
    """
    recipe = torch._C.DispatchKey.CompositeImplicitAutograd
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), recipe):
        return func._op_dk(recipe, *args, **kwargs)
    return func.decompose(*args, **kwargs)


@cache
def changes_window(func: OpOverload) -> bool:
    """Whether the call changes shape or strides of its tensor in place, and no content."""
    return torch.Tag.inplace_view in func.tags


def is_wrapper(kinds: Sequence[type]) -> bool:
    """Whether a tensor among the arguments brings its own dispatch.

    A fake tensor does not: the mode that answers for it lies below whoever watches.
    """
    plain = Tensor.__torch_dispatch__
    return any(
        getattr(kind, "__torch_dispatch__", plain) is not plain
        and kind.__module__ != "torch._subclasses.fake_tensor"
        for kind in kinds
    )


@cache
def draws(func: OpOverload) -> bool:
    """Whether the call may draw random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def _written_arguments(func: OpOverload) -> tuple[tuple[int | None, str], ...]:
    """Position (None for keyword only) and name of each argument that the schema calls written."""
    return tuple(
        (None if argument.kwarg_only else position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


# Kernels that write arguments although their schema does not say so: the position of the flag that
# makes them do so, and the positions written.
_SILENT_WRITES: dict[str, tuple[int, tuple[int, ...]]] = {
    "aten::native_batch_norm": (5, (3, 4)),
    "aten::cudnn_batch_norm": (5, (3, 4)),
    "aten::miopen_batch_norm": (5, (3, 4)),
}


def written_in(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors among the arguments that the call writes."""
    if func.namespace == "c10d":
        # Collectives write in place, and their schemas do not say so.
        return [tensor for value in (*args, *kwargs.values()) for tensor in tensors_in(value)]
    written: list[Tensor] = []
    for position, name in _written_arguments(func):
        value = (
            args[position] if position is not None and position < len(args) else kwargs.get(name)
        )
        written.extend(tensors_in(value))
    silent = _SILENT_WRITES.get(func._schema.name)
    if silent is not None and len(args) > silent[0] and args[silent[0]]:
        written.extend(args[position] for position in silent[1] if args[position] is not None)
    return written
