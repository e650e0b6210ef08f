"""Has anything that a recording froze been replaced since? Asked before every replay.

In-place updates need no watching: a replay reads the same memory. What goes wrong is a replacement:
a parameter assigned anew, `.data =`, `.to()`, an adapter swapped in, a number in an attribute
changed. `Watch` compares the identity of every reachable place, `Addresses` where and how every
tensor lies that a recording read; both in C where it is built.

Where it is, `recall.py` asks for both and for the call itself at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.graphs import quick_look
from ostinato.graphs.contents import Contents
from ostinato.graphs.places import ABSENT, PLAIN, Place, Size, keys_of, same_key, same_plain
from ostinato.graphs.reach import Reach, reach
from ostinato.graphs.reasons import Reason


class PlacesInPython:
    """The twin of `_unchanged.lay_out` and `holds`, for machines without a compiler."""

    def __init__(self, places: tuple[Any, ...], sizes: tuple[Any, ...]) -> None:
        self._places = places
        self._sizes = sizes

    def hold(self) -> bool:
        """Whether every place is as it was when it was laid out."""
        flat, sizes = self._places, self._sizes
        for at in range(0, len(flat), 3):
            container, key, expected = flat[at : at + 3]
            if Place(container, key, expected, "").now() is not expected:
                return False
        return all(_is_as_large(sizes[at], sizes[at + 1]) for at in range(0, len(sizes), 2))


def _is_as_large(held: Any, then: int | tuple[Any, ...]) -> bool:
    if isinstance(then, int):
        return len(held) == then
    now = keys_of(held)
    return len(now) == len(then) and all(map(operator.is_, now, then))


_EXCHANGE: Any = getattr(Tensor, "__dlpack_c_exchange_api__", None)

try:
    from ostinato.graphs._unchanged import (
        as_described,
        describe,
        holds,
        lay_out,
        look_at,
        surely_as_described,
    )
    from ostinato.graphs._unchanged import recalls as _recalls
except ImportError:
    lay_out = PlacesInPython
    holds = PlacesInPython.hold

    def _recalls(then: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any) -> bool:
        return False  # nothing is remembered there either
else:
    if _EXCHANGE is not None:
        quick_look.begin(quick_look.Native(describe, look_at, surely_as_described, _EXCHANGE))

recalls: Callable[[tuple[Any, ...], tuple[Any, ...], Mapping[str, Any]], bool] = _recalls
"""Whether a call is as one before, and all that it reached is as it was; see `recall.py`."""

IS_NATIVE: bool = lay_out is not PlacesInPython
"""Whether the check before each replay runs in C."""


class Compared:
    """Places and sizes as they were. What was laid out borrows from the tuples beside it."""

    __slots__ = ("laid_out", "places", "sizes")

    def __init__(self, places: tuple[Any, ...], sizes: tuple[Any, ...] = ()) -> None:
        self.places = places
        self.sizes = sizes
        self.laid_out = lay_out(places, sizes)

    def hold(self) -> bool:
        """Whether all is as it was; what can no longer be read is not."""
        try:
            return bool(holds(self.laid_out))
        except Exception:  # noqa: BLE001 - of a key's `__hash__`, a slot's property
            return False


@dataclass(frozen=True, slots=True)
class Change:
    """One place that no longer holds what a recording froze.

    Attributes:
        reason: `weights-moved` for tensors and modules of the callable's own, `attribute-changed`
            for Python values and for what an object given to it holds.
        text: "model.scale changed from 2.0 to 3.0".
        place: The name of the place, "model.scale".
    """

    reason: Reason
    text: str
    place: str = ""


class Watch:
    """Everything the callable reaches, compared as a whole.

    Args:
        roots: The callable, and objects given to it that cannot be looked into.

    Attributes:
        found: What the last look found.
        modules: The modules among it, with their paths.
        tensors: The tensors held in its places.
    """

    def __init__(self, *roots: object) -> None:
        self._roots = roots
        self._look()

    def _look(self) -> None:
        self._take(reach(*self._roots))

    def _take(self, found: Reach) -> None:
        found = self.found = _with_facts(found)
        self.modules: list[tuple[str, nn.Module]] = list(found.modules.values())
        self.tensors: list[Tensor] = list(found.tensors())
        # One assignment: another thread must not see new places with old sizes.
        self._compared = Compared(
            tuple(part for place in found.places for part in _as_laid_out(place)),
            tuple(part for size in found.sizes for part in (size.held, _now(size, found))),
        )
        self._read_training()

    # The training flags are part of the signature, not a change: train() and eval() may alternate.

    def _read_training(self) -> tuple[bool, ...]:
        flags = tuple(_training(module) for _, module in self.modules)
        expected = tuple(
            part
            for (_, module), flag in zip(self.modules, flags, strict=True)
            for part in (vars(module), "training", flag)
        )
        key = flags[:1] if len(set(flags)) == 1 else flags
        self._training = (Compared(expected), key)  # in one assignment, as above
        return key

    def training_key(self) -> tuple[bool, ...]:
        """Return the training flags of all modules, shortened when they agree."""
        expected, key = self._training
        return key if expected.hold() else self._read_training()

    def compared(self) -> tuple[Compared, Compared, tuple[bool, ...]]:
        """Return what is compared at present: every place, the training flags, and their key."""
        return self._compared, *self._training

    def changed(self) -> Change | None:
        """Return the first change since the last look; equal Python values are none."""
        return None if self._compared.hold() else self._explain()

    def _explain(self) -> Change | None:
        found, sizes = self.found, self._compared.sizes
        for place in found.places:
            now = place.now()
            if now is place.value or same_plain(place.value, now):
                continue
            return Change(self._reason_of(place, now), _told(place, now), place.name)
        for size, then in zip(found.sizes, sizes[1::2], strict=True):
            if not same_key(then, _now(size, found)) and (text := _grown(size, then, found)):
                reason = Reason.WEIGHTS_MOVED if size.is_of_weights else Reason.ATTRIBUTE_CHANGED
                return Change(reason, text, size.name)
        self.look_again()  # no change that counts: compare with the new objects from now on
        return None

    def _reason_of(self, place: Place, now: object) -> Reason:
        weights = (Tensor, nn.Module)
        if not (isinstance(place.value, weights) or isinstance(now, weights)):
            return Reason.ATTRIBUTE_CHANGED
        is_weight = self._is_in_module(place) or self._is_the_callables(place)
        return Reason.WEIGHTS_MOVED if is_weight else Reason.ATTRIBUTE_CHANGED

    def _is_in_module(self, place: Place) -> bool:
        return any(
            place.container is vars(module).get(name)
            for _, module in self.modules
            for name in ("_parameters", "_buffers", "_modules")
        )

    def _is_the_callables(self, place: Place) -> bool:
        """Whether the callable reaches a place by itself, and not only an object given to it."""
        return len(self._roots) == 1 or any(
            place.container is each.container and same_key(place.key, each.key)
            for each in reach(self._roots[0]).places
        )

    def look_again(self) -> None:
        """Take the present state as the one to compare with."""
        if self._compared.hold():
            return
        places, sizes = list(self.found.places), self._compared.sizes
        is_small = all(
            same_key(then, _now(size, self.found))
            for size, then in zip(self.found.sizes, sizes[1::2], strict=True)
        )
        for index, place in enumerate(places):
            now = place.now()
            if now is not place.value:
                # A counter or a kept activation changes on every call; no need to walk again.
                is_small = is_small and _is_leaf(place.value) and _is_leaf(now)
                places[index] = replace(place, value=now)
        if is_small:
            self._take(replace(self.found, places=places))
        else:
            self._look()


def _now(size: Size, found: Reach) -> int | tuple[Any, ...]:
    return size.now(orders_attributes=found.reads_any_name)


def _training(module: nn.Module) -> bool:
    try:
        return module.training
    except Exception:  # noqa: BLE001 - a property of the user's; eager code finds out itself
        return False


_FACTS = ("grad", "requires_grad")
"""What code may ask a tensor of its own, and what may change while the tensor stays."""


def _with_facts(found: Reach) -> Reach:
    """Add the facts of each tensor that the code may ask for by name, as they are now."""
    asked = [name for name in _FACTS if name in found.names]
    if not asked:
        return found
    places = [
        place
        for place in found.places
        if not (isinstance(place.container, Tensor) and place.key in _FACTS)
    ]
    for place in [place for place in places if issubclass(type(place.value), Tensor)]:
        with suppress(Exception):  # a subclass of the user's may refuse to say it, in a run as well
            if place.value.is_leaf:
                told = [(name, getattr(place.value, name)) for name in asked]
                places += [Place(place.value, n, fact, f"{place.name}.{n}") for n, fact in told]
    return replace(found, places=places)


def _as_laid_out(place: Place) -> tuple[Any, Any, Any]:
    """Return what `lay_out` is told of a place."""
    held = place.container.held if isinstance(place.container, Contents) else None
    # Items whose `==` says all: then C compares the sets themselves, in a tenth of the time.
    if IS_NATIVE and type(held) is set and all(type(item) in (str, int) for item in held):
        return held, None, frozenset(place.value)
    return place.container, place.key, place.value


def _is_leaf(value: object) -> bool:
    return isinstance(value, PLAIN) or type(value) in (Tensor, nn.Parameter)


def _told(place: Place, now: object) -> str:
    then = place.value
    if isinstance(then, PLAIN) and isinstance(now, PLAIN):
        return f"{place.name} changed from {then!r} to {now!r}"
    if now is ABSENT:
        return f"{place.name} was removed"
    return f"{place.name} was {'set' if then is ABSENT else 'replaced by another object'}"


def _grown(size: Size, then: int | tuple[Any, ...], found: Reach) -> str | None:
    """Say how a container's length or order changed; None for new attributes that no run reads."""
    now, before = len(size.held), then if isinstance(then, int) else len(then)
    if now == before:
        return f"{size.name.rstrip('.')} has other keys, or in another order"
    if size.keys is None:
        return f"{size.name} has {now} entries, had {before}"
    for name in size.held:
        if name not in size.keys and found.may_read(name):
            return f"{size.name}{name} was set"
    return None


class Addresses:
    """The tensors that one recording read from outside, and how they lay.

    Args:
        tensors: The tensor objects, as the run used them.

    Attributes:
        natively: The capsule of `_unchanged`; None where C or DLPack cannot tell.
    """

    __slots__ = ("_grads", "_in_python", "natively", "tensors")

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tuple(tensors)
        self.natively = _describe_natively(self.tensors)  # borrows from the tuple
        self._in_python = None if self.natively else [_description(t) for t in self.tensors]
        self._grads = [tensor.requires_grad for tensor in self.tensors]

    def grads_hold(self) -> bool:
        """Whether every tensor requires a gradient, or not, as it did."""
        return [tensor.requires_grad for tensor in self.tensors] == self._grads

    def hold(self) -> bool:
        """Whether every tensor is still where it was, in the same layout and dtype.

        `.data = other` leaves the Python object as it is, and `.data = x.data.t()` the address too.
        """
        if self.natively is not None:
            return bool(as_described(self.natively))
        return [_description(tensor) for tensor in self.tensors] == self._in_python


def _describe_natively(tensors: tuple[Tensor, ...]) -> Any:
    """Return the capsule to compare with, or None where C or DLPack cannot tell."""
    # DLPack has no word for a number that is conjugated on reading.
    if _EXCHANGE is None or not IS_NATIVE or any(tensor.is_complex() for tensor in tensors):
        return None
    try:
        return describe(tensors, quick_look.plain(tensors), _EXCHANGE)
    except (BufferError, RuntimeError, NotImplementedError):
        return None


def _description(tensor: Tensor) -> tuple[object, ...]:
    if tensor.layout is not torch.strided:
        return (tensor.layout, tensor.shape, tensor.dtype, tensor.device)
    reading = (tensor.is_conj(), tensor.is_neg())
    where = (tensor.data_ptr(), tensor.device)
    return (*where, tensor.shape, tensor.stride(), tensor.dtype, *reading)
