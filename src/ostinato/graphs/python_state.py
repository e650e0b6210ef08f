"""Remember the Python state that a function can reach, and put it back after a trial run.

A run on fake tensors must leave no trace, yet `forward` may count its calls, keep an activation in
an attribute, or fill a cache on first use: the user would find fake tensors there. `extents.py`
calls this round every trial run.

What is reached: attributes (`__dict__`, slots) of modules and plain objects, dicts, lists, sets
and deques, closures, defaults, the globals that the function and the methods it names use, private
random generators, and `lru_cache`s. Objects of the standard library, torch and numpy are left
alone: they are either stateless or not ours to rewind.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from ostinato.graphs.cached import CacheState
from ostinato.graphs.container_state import DictState, SeriesState
from ostinato.graphs.held_by import is_of_training
from ostinato.graphs.leaf_grads import GradState
from ostinato.graphs.seeds import set_state, state_of

_ATOMS = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    ModuleType,
)
_FOREIGN = frozenset({*sys.stdlib_module_names, "torch", "numpy", "ostinato"})
_UNSET = object()

PutBack = Callable[[], None]


def remember(*roots: object) -> PutBack:
    """Return a function that puts everything reachable from `roots` back as it is now.

    It may be called several times. Contents of tensors are not remembered; only a container or an
    object that changed is written to.
    """
    put_backs: list[PutBack] = [_random_state()]
    pending = list(roots)
    seen: dict[int, object] = {}  # values keep what they name alive, so that no id is reused
    while pending:
        value = pending.pop()
        if isinstance(value, _ATOMS) or id(value) in seen:
            continue
        seen[id(value)] = value
        for put_back, reached in _open(value):
            if put_back is not None:
                put_backs.append(put_back)
            pending.extend(reached)

    def put_all_back() -> None:
        for put_back in put_backs:
            put_back()

    return put_all_back


Opened = Iterator[tuple[PutBack | None, Iterable[object]]]


def _open(value: Any) -> Opened:
    """Yield how to put `value` back, and what can be reached from it."""
    if isinstance(value, dict):
        state = DictState(value)
        yield state.put_back, state.before.values()
    elif isinstance(value, list | deque | set):
        series = SeriesState(value)
        yield series.put_back, series.before
    elif isinstance(value, Tensor):
        yield GradState([value]).put_back, ()
        return
    elif isinstance(value, tuple | frozenset):
        yield None, value
    elif isinstance(value, functools.partial):
        yield None, (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield None, (value.__self__, value.__func__)
    elif isinstance(value, FunctionType):
        yield from _open_function(value)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield CacheState(value).put_back, (value.__wrapped__,)
    elif isinstance(value, CellType):
        yield _cell_state(value)
    elif isinstance(value, torch.Generator):
        drawn = state_of(value)
        yield lambda: set_state(value, drawn), ()
    if not isinstance(value, type | FunctionType | MethodType):
        yield from _open_object(value)


def _open_object(value: Any) -> Opened:
    if _is_foreign(type(value)) and not (
        isinstance(value, torch.nn.Module) or is_of_training(value)
    ):
        return
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is dict:
        state = DictState(attributes)
        yield state.put_back, state.before.values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            slot = kind.__dict__.get(_mangled(kind, name))
            if slot is not None and name not in {"__dict__", "__weakref__"}:
                yield _slot_state(value, slot)
    yield None, _methods_named(type(value), ("forward", "__call__"))


def _is_foreign(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _FOREIGN


def _methods_named(kind: type, names: Iterable[str]) -> list[object]:
    """The functions that a call of `forward` can reach by name on the same object."""
    found: dict[str, FunctionType] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        owner = next((base for base in kind.__mro__ if name in base.__dict__), None)
        if name in found or owner is None or _is_foreign(owner):
            continue
        function = owner.__dict__[name]
        if isinstance(function, FunctionType):
            found[name] = function
            pending.extend(_names_in(function.__code__))
    return list(found.values())


def _open_function(function: FunctionType) -> Opened:
    if (function.__module__ or "").partition(".")[0] in _FOREIGN:
        return
    yield None, (*(function.__closure__ or ()), function.__defaults__, function.__kwdefaults__)
    own = DictState(function.__dict__)
    yield own.put_back, own.before.values()
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            put_back = _global_state(function.__globals__, name)
            yield put_back, (function.__globals__[name],)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _mangled(kind: type, name: str) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _slot_state(value: Any, slot: Any) -> tuple[PutBack, Iterable[object]]:
    def read() -> object:
        try:
            return slot.__get__(value)
        except AttributeError:
            return _UNSET

    before = read()

    def put_back() -> None:
        now = read()
        if now is before:
            return
        if before is _UNSET:
            slot.__delete__(value)
        else:
            slot.__set__(value, before)

    return put_back, () if before is _UNSET else (before,)


def _cell_state(cell: CellType) -> tuple[PutBack, Iterable[object]]:
    try:
        before = cell.cell_contents
    except ValueError:  # not assigned yet
        return lambda: None, ()

    def put_back() -> None:
        if cell.cell_contents is not before:
            cell.cell_contents = before

    return put_back, (before,)


def _global_state(names: dict[str, Any], name: str) -> PutBack:
    before = names[name]

    def put_back() -> None:
        if names.get(name, _UNSET) is not before:
            names[name] = before

    return put_back


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())


def _random_state() -> PutBack:
    """Python's, numpy's and torch's default generators (those of devices already in use)."""
    python = random.getstate()
    generators = [torch.default_generator]
    if _cuda_in_use():
        generators += torch.cuda.default_generators
    states = [(generator, state_of(generator)) for generator in generators]
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy_random.get_state() if numpy_random is not None else None

    def put_back() -> None:
        random.setstate(python)
        for generator, state in states:
            set_state(generator, state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)

    return put_back
