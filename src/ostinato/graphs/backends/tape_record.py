"""Write down every aten call of one run, with the memory that each tensor looks at.

The recorder must not keep intermediates alive (a prefill makes gigabytes of them), so that it knows
a tensor by weak reference, and memory by the calls that made it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import (
    base_name,
    draws,
    storage_id,
    tensors_in,
    written_in,
)
from ostinato.graphs.aten_mode import AtenMode
from ostinato.graphs.backends.tape_program import Call, Origin, Path, Program, Ref, Region, Value
from ostinato.graphs.observe_notes import Notes
from ostinato.graphs.observe_rules import is_metadata, opaque, verdict
from ostinato.graphs.reasons import Reason
from ostinato.graphs.source_lines import running_line

_NOT_PLAIN = "the tape records dense tensors on the CPU, and here is another kind"
_CLONE = torch.ops.aten.clone.default


class Recorder(AtenMode):
    """Runs every call and writes it down.

    Attributes:
        notes: What a recording cannot hold; the caller decides what to do about it.
        outside: Tensors from outside that are no inputs, in the order met.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.program = Program()
        self.notes = Notes()
        self.outside: list[Tensor] = []
        self._known: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._outside_regions: dict[int, int] = {}
        self._outside_objects: dict[int, Tensor] = {}
        for tensor in inputs:
            self._add_outside(tensor)

    def on_opaque(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let it through, noted: the tape cannot say what it touches."""
        self.notes.refuse(*opaque(func))
        return func(*args, **kwargs)

    def finish(self) -> Program:
        """Mark what outlives the run, and return the program."""
        for reference, value in self._known.values():
            tensor = reference()
            region = self.program.regions[self.program.region_of(value)]
            if tensor is not None and region.origin is Origin.MADE:
                region.is_kept = True
                region.storage = tensor.untyped_storage()
        return self.program

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor came out of a call of this run, or was met in one."""
        entry = self._known.get(id(tensor))
        return entry is not None and entry[0]() is tensor

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let it through and write it down."""
        if base_name(func) == "lift_fresh":
            return self._lift(func, args[0])
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        written = written_in(func, args, kwargs)
        if not all(map(_is_plain, taken)):
            self.notes.refuse(Reason.CAPTURE_ERROR, str(func), _NOT_PLAIN)
            return func(*args, **kwargs)
        encoded_args = tuple(self._encode(arg) for arg in args)
        encoded_kwargs = {name: self._encode(arg) for name, arg in kwargs.items()}
        written_values = [self._value_of(tensor) for tensor in written]
        memory = {storage_id(t): self.program.region_of(self._value_of(t)) for t in taken}
        result = func(*args, **kwargs)
        made = list(_tensor_paths(result))
        self._judge(func, args, kwargs, taken, written, [tensor for _, tensor in made])
        if is_metadata(func):
            return result
        if not all(_is_plain(tensor) for _, tensor in made):
            self.notes.refuse(Reason.CAPTURE_ERROR, str(func), _NOT_PLAIN)
            return result
        is_pure = self._is_pure(func, taken, written)
        call = Call(func, encoded_args, encoded_kwargs, [], written_values, running_line())
        for path, tensor in made:
            call.outs.append((path, self._result_value(tensor, memory, is_pure)))
        self.program.calls.append(call)
        for value in written_values:
            self._spoil(self.program.region_of(value))
        return result

    def _lift(self, func: OpOverload, constant: Tensor) -> Tensor:
        """Keep a pristine copy of a Python value; the run itself gets a clone of that."""
        region = self._add_region(
            Region(Origin.CONSTANT, constant.untyped_storage().nbytes(), None, is_pure=True)
        )
        pristine = constant.detach().clone()
        self.program.regions[region].storage = pristine.untyped_storage()
        self.program.regions[region].nbytes = pristine.untyped_storage().nbytes()
        self.program.values.append(Value.of(pristine, region))
        ref = Ref(len(self.program.values) - 1)
        result: Tensor = func(constant)
        call = Call(_CLONE, (ref,), {}, [], [], running_line())
        call.outs.append(((), self._result_value(result, {}, is_pure=True)))
        self.program.calls.append(call)
        return result

    def _encode(self, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return Ref(self._value_of(arg))
        if isinstance(arg, list | tuple):
            return type(arg)(self._encode(item) for item in arg)
        return arg

    def _value_of(self, tensor: Tensor) -> int:
        entry = self._known.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
        return self._add_outside(tensor, is_input=False)

    def _add_outside(self, tensor: Tensor, is_input: bool = True) -> int:
        memory = storage_id(tensor)
        region = self._outside_regions.get(memory)
        if region is None:
            storage = tensor.untyped_storage()
            region = self._add_region(Region(Origin.OUTSIDE, storage.nbytes(), storage))
            self._outside_regions[memory] = region
        if not is_input:
            self.outside.append(tensor)
        return self._learn(tensor, region)

    def _add_region(self, region: Region) -> int:
        self.program.regions.append(region)
        return len(self.program.regions) - 1

    def _learn(self, tensor: Tensor, region: int) -> int:
        self.program.values.append(Value.of(tensor, region))
        value = len(self.program.values) - 1
        self._known[id(tensor)] = (weakref.ref(tensor), value)
        return value

    def _result_value(self, tensor: Tensor, memory: dict[int, int], is_pure: bool) -> int:
        """Return the value that a returned tensor is: an argument, a view, or new memory."""
        key = storage_id(tensor)
        if key not in memory:
            storage = tensor.untyped_storage()
            region = Region(
                Origin.MADE,
                storage.nbytes(),
                storage if is_pure else None,
                maker=len(self.program.calls),
                is_pure=is_pure,
            )
            memory[key] = self._add_region(region)
            return self._learn(tensor, memory[key])
        if self.knows(tensor):
            value = self._known[id(tensor)][1]
            # An argument came back; calls such as unsqueeze_ change its window on the way.
            is_same = self.program.values[value] == Value.of(tensor, memory[key])
            return value if is_same else self._learn(tensor, memory[key])
        return self._learn(tensor, memory[key])

    def _is_pure(
        self, func: OpOverload, taken: Sequence[Tensor], written: Sequence[Tensor]
    ) -> bool:
        if written or draws(func) or func.namespace != "aten":
            return False
        regions = (self.program.regions[self.program.region_of(self._value_of(t))] for t in taken)
        return all(region.is_pure for region in regions)

    def _spoil(self, index: int) -> None:
        region = self.program.regions[index]
        if region.origin is Origin.MADE:
            region.is_pure = False
            region.storage = None

    def _judge(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        taken: Sequence[Tensor],
        written: Sequence[Tensor],
        made: Sequence[Tensor],
    ) -> None:
        write_ids = {id(tensor) for tensor in written}
        read = [tensor for tensor in taken if id(tensor) not in write_ids]
        found = verdict(func, args, kwargs, read, [*written, *made])
        if found is not None:
            self.notes.refuse(found[0], str(func), found[1])


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type == "cpu"


def _tensor_paths(result: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    if isinstance(result, Tensor):
        yield path, result
    elif isinstance(result, list | tuple):
        for index, item in enumerate(result):
            yield from _tensor_paths(item, (*path, index))
