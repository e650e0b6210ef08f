"""What the lint knows of a value without running anything.

A value is a tensor that may live on a GPU, a tensor known to be on the host, plain Python, and so
on. What depends on a caller or on another file is a symbol: an expression over parameters,
attributes and returns, which `project.py` resolves when every file has been read. Values are plain
and small, since they travel between processes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

# A symbol heavier than this is forgotten: nothing that long is worth following.
_MOST_WEIGHT = 14


class Kind(Enum):
    """What a value is; `of` of a Value says the rest."""

    UNKNOWN = 0
    PYTHON = 1  # int, str, None, a dict of them: reading it never waits
    ARRAY = 2  # numpy
    HOST = 3  # a tensor in host memory
    TENSOR = 4  # a tensor that may be on a GPU
    ITEMS = 5  # of: the values of a tuple or list, one by one
    EACH = 6  # of: what every item of a container is
    INSTANCE = 7  # of: the dotted name of a class
    NAME = 8  # of: the dotted name of a module, class or function
    WRAPPED = 9  # of: (how, what) for graphed and torch.compile
    SYMBOL = 10  # of: Symbol

    def __reduce_ex__(self, protocol: Any) -> Any:  # by number: pickles of many values stay small
        return Kind, (self.value,)


class Trait:
    """What else matters of a value; plain ints, since they are joined a million times in a run."""

    NONE = 0
    BOOL = 1  # a tensor of booleans
    TRANSPOSED = 2  # a view whose strides were swapped
    NO_GRAD = 4  # nothing could flow back through it
    PINNED = 8
    GROWS = 16  # another shape each time round a loop
    VARIES = 32  # another number each time round a loop
    LENGTH = 64  # a number read off a shape
    SCALAR = 128  # a tensor without dimensions
    MAPPING = 256  # a container with keys, which are plain Python
    MADE_HERE = 512  # pinned memory that dies with the function, or the block, that it was made in


class Op(Enum):
    """How a symbol came about."""

    PARAM = 0  # name
    ATTRIBUTE = 1  # base, name
    METHOD = 2  # base, name, args, keywords
    RETURN = 3  # target, args, keywords
    ITEM = 4  # base, index
    MIX = 5  # operands: a tensor if one of them is
    JOIN = 6  # operands: any of them
    OUTPUT = 7  # what a model gave, where nothing better is known

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Op, (self.value,)


@dataclass(frozen=True, slots=True)
class Symbol:
    """An operation that cannot be carried out before all files are known."""

    op: Op
    parts: tuple[Any, ...]
    weight: int


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file; columns count characters from 0, as `ast` gives them."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Value:
    """One value.

    Attributes:
        of: See Kind; for PYTHON, the constant in a tuple of one, if it is known.
        read: Where it was read from a device with its gradient lost, if it was.
    """

    kind: Kind
    of: Any = None
    traits: int = 0
    read: Spot | None = None

    def has(self, trait: int) -> bool:
        """Return whether the value has this trait."""
        return bool(self.traits & trait)

    def with_traits(self, traits: int) -> Value:
        """Return the same value with these traits added."""
        if not traits or traits | self.traits == self.traits:
            return self
        return replace(self, traits=int(self.traits | traits))

    def without(self, traits: int) -> Value:
        """Return the same value with these traits taken away."""
        return replace(self, traits=int(self.traits & ~traits)) if self.traits & traits else self

    def with_read(self, read: Spot | None) -> Value:
        """Return the same value, read from a device at `read`."""
        return self if read is None else replace(self, read=read)


UNKNOWN = Value(Kind.UNKNOWN)
PYTHON = Value(Kind.PYTHON)
ARRAY = Value(Kind.ARRAY)
HOST = Value(Kind.HOST)
TENSOR = Value(Kind.TENSOR)
TENSORS = Value(Kind.EACH, TENSOR)
# What a model of unknown make answers with: logits, or an object or tuple that holds some.
OUTPUT = Value(Kind.INSTANCE, "<output>")

# A number that varies in one branch varies.
_SPREADS = int(Trait.VARIES | Trait.LENGTH | Trait.MAPPING | Trait.GROWS)
# Which of two possibilities speaks for both, where one of them may hold.
_RANK = {
    Kind.UNKNOWN: 1,
    Kind.PYTHON: 0,
    Kind.ARRAY: 2,
    Kind.HOST: 3,
    Kind.TENSOR: 9,
    Kind.ITEMS: 5,
    Kind.EACH: 5,
    Kind.NAME: 4,
    Kind.INSTANCE: 6,
    Kind.WRAPPED: 7,
    Kind.SYMBOL: 8,
}


def constant(value: object) -> Value:
    """Return a Python value that is written in the source."""
    return Value(Kind.PYTHON, (value,))


def name(dotted: str) -> Value:
    """Return the value that a dotted name stands for."""
    return Value(Kind.NAME, dotted)


def instance(dotted: str) -> Value:
    """Return an instance of the class of that name."""
    return Value(Kind.INSTANCE, dotted)


def each(item: Value) -> Value:
    """Return a container of such items."""
    return Value(Kind.EACH, item)


def symbol(op: Op, *parts: Any, traits: int = 0) -> Value:
    """Return what is not known yet; UNKNOWN when it would weigh too much."""
    weight = 1 + sum(_weight(part) for part in parts)
    if weight > _MOST_WEIGHT:
        return Value(Kind.UNKNOWN, None, traits)
    return Value(Kind.SYMBOL, Symbol(op, parts, weight), traits)


def _weight(part: Any) -> int:
    if isinstance(part, Value):
        if part.kind is Kind.SYMBOL:
            return int(part.of.weight)
        if part.kind in (Kind.ITEMS, Kind.EACH, Kind.WRAPPED):
            return _weight(part.of)
        return 0
    return sum(map(_weight, part)) if isinstance(part, tuple) else 0


def join(first: Value, second: Value) -> Value:
    """Return what holds where either of two may: a tensor, if one of them is."""
    if first is second or first == second:
        return first
    read = first.read or second.read
    low, high = sorted((first, second), key=lambda value: _RANK[value.kind])
    if high.kind is Kind.SYMBOL and low.kind is Kind.SYMBOL:
        return _joined_symbols(first, second).with_read(read)
    if high.kind is Kind.ITEMS and low.kind is Kind.ITEMS and len(high.of) == len(low.of):
        return Value(Kind.ITEMS, tuple(map(join, low.of, high.of)))
    if low.kind is not high.kind:
        return high.with_read(read)
    if high.kind is Kind.PYTHON:
        return Value(Kind.PYTHON, None, (low.traits | high.traits) & _SPREADS, read)
    if high.kind is Kind.EACH:
        return Value(Kind.EACH, join(low.of, high.of), (low.traits | high.traits) & _SPREADS)
    if low.of != high.of:
        return UNKNOWN.with_read(read)
    either = (high.traits | low.traits) & Trait.GROWS
    return Value(high.kind, high.of, (high.traits & low.traits) | either, read)


def _joined_symbols(first: Value, second: Value) -> Value:
    parts: list[Value] = []
    for value in (first, second):
        inner = value.of.parts if value.of.op is Op.JOIN else (value,)
        parts += [one for one in inner if one not in parts]
    traits = first.traits & second.traits
    if len(parts) == 1:
        return Value(Kind.SYMBOL, parts[0].of, traits)
    if len(parts) == 2 and parts[1].of.op is Op.MIX and parts[0] in parts[1].of.parts:
        return Value(Kind.SYMBOL, parts[1].of, traits)
    return symbol(Op.JOIN, *parts, traits=traits)


def mentions_parameter(value: Value) -> bool:
    """Return whether the value depends on who calls the function."""
    return _mentions(value)


def _mentions(part: Any) -> bool:
    if isinstance(part, Value):
        if part.kind is Kind.SYMBOL:
            return part.of.op is Op.PARAM or any(map(_mentions, part.of.parts))
        return part.kind in (Kind.ITEMS, Kind.EACH, Kind.WRAPPED) and _mentions(part.of)
    return isinstance(part, tuple) and any(map(_mentions, part))


def comes_from_model(part: Any) -> bool:
    """Return whether a value is computed from what a model gave."""
    if isinstance(part, Value):
        if part.kind is Kind.SYMBOL:
            return part.of.op is Op.OUTPUT or any(map(comes_from_model, part.of.parts))
        return part == OUTPUT
    return isinstance(part, tuple) and any(map(comes_from_model, part))


def is_large(value: Value, room: int = 40) -> bool:
    """Return whether a value holds more than some other values, at any depth."""
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        room -= 1
        if room < 0:
            return True
        if isinstance(part, Value):
            if part.kind in (Kind.ITEMS, Kind.EACH, Kind.WRAPPED):
                waiting.append(part.of)
        elif isinstance(part, tuple):
            waiting.extend(part)
    return False
