"""Follow every aten call of one run: which tensors it takes from outside, and what it writes.

A tensor is known by its memory: memory of an input, memory made by the run, or memory from outside.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import (
    base_name,
    changes_window,
    draws,
    storage_id,
    tensors_in,
    written_in,
)
from ostinato.graphs.aten_mode import AtenMode
from ostinato.graphs.observe_draws import SEEDED, STATE_IS_ASKED, TurnedBack, is_default, is_same
from ostinato.graphs.observe_journal import Journal
from ostinato.graphs.observe_notes import Escape, Notes
from ostinato.graphs.observe_rules import exchanges_memory, is_metadata, opaque, verdict
from ostinato.graphs.reasons import Reason
from ostinato.graphs.seeds import SeedWatch
from ostinato.graphs.source_lines import running_line

_COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_dtensor"})


@dataclass(frozen=True, slots=True)
class _Birth:
    """A tensor object that the run made; `is_outside` when it only views memory from outside."""

    tensor: weakref.ref[Tensor]
    op: str
    where: str | None
    is_outside: bool


class CallWatcher(AtenMode):
    """Lets every call through and keeps the books of one run."""

    def __init__(
        self,
        inputs: Sequence[Tensor],
        device: torch.device,
        seeds: SeedWatch,
        states: TurnedBack,
        scratch: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.notes = Notes()
        self.journal = Journal()
        self.ops = 0
        self.may_draw = False
        self.has_collective = False
        self.externals: list[Tensor] = []
        self.written_inputs: set[int] = set()
        self.generators: list[torch.Generator] = []
        self.devices: set[torch.device] = set()
        self._device = device
        self._seeds = seeds
        self._states = states
        self._scratch = scratch
        self._inputs: dict[int, list[int]] = {}
        for index, tensor in enumerate(inputs):
            if tensor.layout is torch.strided:
                self._inputs.setdefault(storage_id(tensor), []).append(index)
        self._made: set[int] = set()
        self._external: set[int] = set()
        self._external_objects: set[int] = set()
        self._written: set[int] = set()
        self._births: dict[int, _Birth] = {}

    @property
    def written_externals(self) -> list[Tensor]:
        """The externals whose memory was written, through whichever view."""
        return [tensor for tensor in self.externals if storage_id(tensor) in self._written]

    def escapes(self, leaves: Sequence[object]) -> list[Escape]:
        """Return the tensors made by the run that are alive and not among the result's leaves."""
        returned = {id(leaf) for leaf in leaves}
        births, self._births = self._births, {}
        return [
            Escape(birth.op, birth.where)
            for identity, birth in births.items()
            if not birth.is_outside and birth.tensor() is not None and identity not in returned
        ]

    def on_opaque(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let it through, noted: neither backend could say what it touches."""
        self.notes.refuse(*opaque(func))
        return func(*args, **kwargs)

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let it through and keep the books."""
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        written = written_in(func, args, kwargs)
        self.has_collective = self.has_collective or func.namespace in _COLLECTIVES
        if base_name(func) != "lift_fresh":  # its argument is a constant born in Python this moment
            for tensor in taken:
                self._meet(tensor)
        for tensor in written:
            self._note_write(func, tensor)
        self._note_draw(func, args, kwargs)
        result = func(*args, **kwargs)
        if draws(func):
            self._states.look()
        made = list(tensors_in(result))
        self._judge(func, args, kwargs, taken, written, made)
        if not is_metadata(func):
            self._count(taken, made, written)
        given = {id(tensor) for tensor in taken}
        for tensor in made:
            if id(tensor) not in given or base_name(func) == "lift_fresh":
                self._note_birth(func, tensor)
        return result

    def _meet(self, tensor: Tensor) -> None:
        """Note a tensor from outside; one that shares memory with an input or the run is none."""
        if tensor.layout is not torch.strided or self._is_child(tensor):
            return
        memory = storage_id(tensor)
        if memory in self._inputs or memory in self._made:
            return
        self._external.add(memory)
        if id(tensor) not in self._external_objects:
            # Kept alive from here on, so that its id is its own for the rest of the run.
            self._external_objects.add(id(tensor))
            self.externals.append(tensor)

    def _is_child(self, tensor: Tensor) -> bool:
        birth = self._births.get(id(tensor))
        return birth is not None and birth.tensor() is tensor

    def _note_write(self, func: OpOverload, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        if changes_window(func):
            self._note_window_change(func, tensor)
            return
        if exchanges_memory(func) and not self._is_child(tensor):
            self.journal.before_exchange(tensor)
        memory = storage_id(tensor)
        if memory in self._inputs:
            self.written_inputs.update(self._inputs[memory])
        elif memory in self._external:
            if memory not in self._scratch:
                self.journal.before_write(tensor)
            self._written.add(memory)

    def _note_window_change(self, func: OpOverload, tensor: Tensor) -> None:
        memory = storage_id(tensor)
        is_outside = memory in self._inputs or memory in self._external
        if is_outside and not self._is_child(tensor) and base_name(func) != "detach_":
            self.journal.before_exchange(tensor)
            detail = (
                "the shape of a tensor from outside is changed in place; no replay repeats that"
            )
            self.notes.refuse(Reason.PYTHON_SIDE_EFFECT, str(func), detail)

    def _note_draw(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not draws(func):
            return
        if self._seeds.has_seen_one:
            self.notes.refuse_generator(str(func), SEEDED)
        if self._states.look():
            self.notes.refuse_generator(str(func), STATE_IS_ASKED)
        self.may_draw = True
        for value in (*args, *kwargs.values()):
            is_private = isinstance(value, torch.Generator) and not is_default(value)
            if is_private and not any(is_same(value, known) for known in self.generators):
                self.journal.before_draw(value)
                self.generators.append(value)

    def _judge(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        taken: Sequence[Tensor],
        written: Sequence[Tensor],
        made: Sequence[Tensor],
    ) -> None:
        if self._device.type != "cpu" and all(t.device.type == "cpu" for t in (*taken, *made)):
            return  # host arithmetic beside the recorded device: frozen like any Python value
        write_ids = {id(tensor) for tensor in written}
        read = [tensor for tensor in taken if id(tensor) not in write_ids]
        found = verdict(func, args, kwargs, read, [*written, *made])
        if found is not None:
            self.notes.refuse(found[0], str(func), found[1])

    def _count(
        self, taken: Sequence[Tensor], made: Sequence[Tensor], written: Sequence[Tensor]
    ) -> None:
        strided = [t for t in (*taken, *made) if t.layout is torch.strided]
        if not written and made and len(strided) == len(taken) + len(made):
            sources = {storage_id(tensor) for tensor in taken}
            if all(storage_id(tensor) in sources for tensor in made):
                return  # a view
        self.ops += 1
        self.devices.update(
            t.device
            for t in (*taken, *made)
            if t.device.type != "meta" and (t.ndim or t.device.type != "cpu")
        )

    def _note_birth(self, func: OpOverload, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        memory = storage_id(tensor)
        is_outside = memory in self._inputs or memory in self._external
        if not is_outside:
            self._made.add(memory)
        where = None if is_outside else running_line()
        self._births[id(tensor)] = _Birth(weakref.ref(tensor), str(func), where, is_outside)
