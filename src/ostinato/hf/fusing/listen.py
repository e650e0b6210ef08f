"""Hear every call of a run, and write it down as plain values."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import storage_id, tensors_in, written_in
from ostinato.graphs.aten_mode import AtenMode
from ostinato.hf.fusing.stream import Op, Stream, Value


class Scribe:
    """Gives numbers to memory, in the order in which it is met.

    A tensor is known by a weak reference, so that nothing is kept alive: memory whose address comes
    again under another tensor is other memory.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._outside: dict[int, int] = {}
        self._made: set[int] = set()
        self._regions = 0

    def call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op:
        """Write down a call that is about to be made."""
        written = written_in(func, args, kwargs)
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        return Op(
            str(func),
            tuple(map(self._plain, args)),
            tuple((name, self._plain(value)) for name, value in kwargs.items()),
            (),
            frozenset(map(self._region, taken)),
            frozenset(map(self._region, written)),
        )

    def result(
        self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Value, ...]:
        """Write down what came of it."""
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        memory = {storage_id(tensor): self._region(tensor) for tensor in taken}
        return tuple(self._value(tensor, memory) for tensor in tensors_in(result))

    def alive(self) -> frozenset[int]:
        """Return the memory made meanwhile that some tensor still looks at."""
        alive = {region for known, region in self._known.values() if known() is not None}
        return frozenset(alive & self._made)

    def _plain(self, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return _window(arg, self._region(arg))
        if isinstance(arg, list | tuple):
            return tuple(map(self._plain, arg))
        return arg

    def _region(self, tensor: Tensor) -> int:
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        region = self._outside.get(storage_id(tensor))
        if region is None:
            region = self._outside[storage_id(tensor)] = self._next()
        self._known[id(tensor)] = (weakref.ref(tensor), region)
        return region

    def _value(self, tensor: Tensor, memory: dict[int, int]) -> Value:
        key = storage_id(tensor)
        if key not in memory:
            memory[key] = self._next()
            self._made.add(memory[key])
        self._known[id(tensor)] = (weakref.ref(tensor), memory[key])
        return _window(tensor, memory[key])

    def _next(self) -> int:
        self._regions += 1
        return self._regions


def _window(tensor: Tensor, region: int) -> Value:
    return Value(
        region,
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
        str(tensor.dtype).removeprefix("torch."),
    )


class Listener(AtenMode):
    """Makes every call as it is and writes it down."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scribe = Scribe()
        self._ops: list[Op] = []

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make it and write it down."""
        heard = self._scribe.call(func, args, kwargs)
        result = func(*args, **kwargs)
        self._ops.append(with_outs(heard, self._scribe.result(result, args, kwargs)))
        return result

    def on_opaque(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give up: what a larger operator does inside is not heard."""
        raise Unheard(f"what happens inside {func} is not seen")

    def stream(self) -> Stream:
        """Return what was heard; what is still alive now counts as kept."""
        return Stream(tuple(self._ops), self._scribe.alive())


class Unheard(Exception):
    """A run holds more than calls that torch dispatches."""


def with_outs(op: Op, outs: tuple[Value, ...]) -> Op:
    """Return `op` with its results."""
    return Op(op.name, op.args, op.kwargs, outs, op.reads, op.writes)


def blank(value: Value, device: torch.device) -> Tensor:
    """Return memory for `value` that nobody has filled."""
    dtype = getattr(torch, value.dtype)
    return torch.empty_strided(value.shape, value.strides, dtype=dtype, device=device)
