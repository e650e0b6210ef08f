"""The fastest Python door to an aten call.

`torch.ops` parses arguments by schema; torch's own bindings have a parser generated for each
function and need 0.6 us where `torch.ops` needs 1.0 us (`mul` with `out`, one x86 core, torch
2.13). Which binding makes which aten call is listed nowhere, so each candidate is tried under a
mode that looks at the aten call and stops it: only the exact call that was recorded will do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.graphs.aten_calls import base_name


@dataclass(frozen=True, slots=True)
class Invocation:
    """A Python callable with the arguments that make one aten call."""

    door: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def fastest(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Invocation:
    """Return the quickest way to call `func(*args, **kwargs)`; runs nothing."""
    if func.namespace != "aten":
        return Invocation(func, args, kwargs)
    spelled = _as_bindings_spell(func, kwargs)
    for home in (torch._C.TensorBase, torch._C._VariableFunctions, torch._C._nn):
        door: Callable[..., Any] | None = getattr(home, base_name(func), None)
        if door is None:
            continue
        # Some bindings have defaults of their own: mse_loss then needs its reduction given.
        for given in (args, _spelled_out(func, args)):
            if _call_made_by(door, given, spelled).equals(func, args, kwargs):
                return Invocation(door, given, spelled)
    return Invocation(func._op, args, kwargs)


def _as_bindings_spell(func: OpOverload, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The bindings know one keyword, `out`; it takes a tuple when there are several."""
    outs = [a.name for a in func._schema.arguments if a.is_out]
    if not outs:
        return kwargs
    rest = {name: value for name, value in kwargs.items() if name not in outs}
    given = tuple(kwargs[name] for name in outs)
    return {**rest, "out": given[0] if len(given) == 1 else given}


class _Stopped(Exception):
    """Raised instead of running the aten call that was looked at."""


class _Look(TorchDispatchMode):
    """Looks at the first aten call and stops it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see AtenMode

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.func: Any = None
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.func, self.args, self.kwargs = func, args, kwargs or {}
        raise _Stopped

    def equals(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if self.func is not func:
            return False
        seen, wanted = _spelled_out(func, self.args), _spelled_out(func, args)
        return _same(seen, wanted) and _same(self.kwargs, kwargs)


def _call_made_by(door: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Look:
    look = _Look()
    try:
        # Some doors are deprecated; they are only looked at, so nobody needs to hear it.
        with warnings.catch_warnings(action="ignore"), look:
            door(*args, **kwargs)
    except (_Stopped, TypeError, RuntimeError, IndexError):
        pass  # a door that does not take these arguments is not the one
    return look


def _spelled_out(func: OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add the positional defaults: some bindings pass them on, others leave them out."""
    rest = [a for a in func._schema.arguments[len(args) :] if not a.kwarg_only]
    return (*args, *(argument.default_value for argument in rest))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)
