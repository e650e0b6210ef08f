"""The options of `graphed`, checked when it is called rather than when the first request comes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ostinato.errors import OstinatoError, UsageError, WrongTypeError
from ostinato.graphs.buckets import Buckets
from ostinato.graphs.tree import Structure
from ostinato.units import parse_bytes

_MOST_NAMED = 8

Outputs = Literal["owned", "leased"]
Memory = Literal["own", "shared"]
OnUnfit = Literal["eager", "raise"]
BackendName = Literal["auto", "cuda", "tape", "eager"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a runner behaves; see `graphed` for what each one means."""

    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    admit_after: int = 2
    warmups: int = 3
    budget_bytes: int = 2 << 30
    outputs: Outputs = "owned"
    drop_unprofitable: bool = False
    on_unfit: OnUnfit = "eager"
    verify_every: int = 0
    backend: BackendName = "auto"
    scratch: tuple[Tensor, ...] = ()
    memory: Memory = "own"


def check_options(
    fn: Callable[..., Any],
    *,
    buckets: Mapping[str, Buckets] | None,
    admit_after: int,
    warmups: int,
    budget: int | str,
    outputs: str,
    drop_unprofitable: bool,
    on_unfit: str,
    verify_every: int,
    backend: str,
    scratch: Sequence[Tensor],
    memory: str,
) -> Options:
    """Return the options of one runner.

    Raises:
        UsageError: OST1011, an option has a value it cannot have; OST1001, `budget` is no amount of
            bytes; OST1012, `buckets` names an argument that `fn` does not have.
    """
    check_callable(fn)
    _check_whole("admit_after", admit_after, least=1)
    _check_whole("warmups", warmups, least=0)
    _check_whole("verify_every", verify_every, least=0)
    _check_choice("outputs", outputs, ("owned", "leased"))
    _check_choice("on_unfit", on_unfit, ("eager", "raise"))
    _check_choice("backend", backend, ("auto", "cuda", "tape", "eager"))
    _check_choice("memory", memory, ("own", "shared"))
    if memory == "shared" and outputs == "leased":
        raise _bad("outputs", outputs, 'pass "owned": another recording overwrites shared memory')
    if not isinstance(drop_unprofitable, bool):
        raise _bad("drop_unprofitable", drop_unprofitable, "pass True or False", WrongTypeError)
    if backend == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            'backend="cuda" was asked for, and torch sees no CUDA device',
            code="OST1011",
            remedy='use backend="auto": it records on the GPU where there is one, else on the tape',
        )
    return Options(
        buckets=_checked_buckets(fn, buckets),
        admit_after=admit_after,
        warmups=warmups,
        budget_bytes=parse_bytes(budget),
        outputs=outputs,  # type: ignore[arg-type]
        drop_unprofitable=drop_unprofitable,
        on_unfit=on_unfit,  # type: ignore[arg-type]
        verify_every=verify_every,
        backend=backend,  # type: ignore[arg-type]
        scratch=_checked_scratch(scratch),
        memory=memory,  # type: ignore[arg-type]
    )


def check_callable(fn: object) -> None:
    """Refuse what cannot be recorded by its kind.

    Raises:
        WrongTypeError: OST1010, not a callable, a class, a coroutine or generator function.
    """
    if fn is None:
        remedy = "look where it comes from: something was not loaded, or not returned"
        raise _unfit("graphed takes a callable, got None", remedy)
    if not callable(fn):
        raise _unfit(f"graphed takes a callable, got {_shown(fn)}", "pass a function or a module")
    if isinstance(fn, type):
        raise _unfit(f"graphed got the class {fn.__name__}", "pass an instance of it")
    if _has_no_forward(fn):
        raise _unfit(
            f"graphed got a {type(fn).__name__}, a module without a forward",
            "pass the module that calls its parts, or put them in an nn.Sequential",
        )
    target = _function_of(fn)
    name = getattr(fn, "__name__", type(fn).__name__)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise _unfit(
            f"{name} is a coroutine function: a call only makes the coroutine, it runs later",
            "wrap the synchronous step that it awaits",
        )
    if inspect.isgeneratorfunction(target):
        raise _unfit(
            f"{name} is a generator function: a call only makes the generator, it runs later",
            "wrap the function that computes one item",
        )


def _has_no_forward(fn: object) -> bool:
    if not isinstance(fn, torch.nn.Module) or type(fn).__call__ is not torch.nn.Module.__call__:
        return False
    return getattr(fn.forward, "__func__", None) is torch.nn.Module.forward


def _function_of(fn: object) -> object:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, torch.nn.Module):
        return inspect.unwrap(fn.forward)
    if not inspect.isroutine(fn):
        return getattr(type(fn), "__call__", fn)  # noqa: B004 - the method itself is asked for
    return inspect.unwrap(fn)


def _unfit(problem: str, remedy: str) -> OstinatoError:
    return WrongTypeError(problem, code="OST1010", remedy=remedy)


def parameter_names(fn: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """Return the names of the positional parameters, and whether `fn` takes any keyword."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return (), True
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    names = tuple(p.name for p in parameters if p.kind in kinds)
    open_ended = any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
    return names, open_ended


def sees_keyword_order(fn: Callable[..., Any]) -> bool:
    """Whether `fn` takes `**kwargs`, whose order it can see."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.kind is p.VAR_KEYWORD for p in parameters)


def _checked_buckets(
    fn: Callable[..., Any], buckets: Mapping[str, Buckets] | None
) -> dict[str, Buckets]:
    if buckets is None:
        return {}
    if not isinstance(buckets, Mapping):
        remedy = 'pass a mapping such as {"input_ids": Buckets(dim=1, sizes=(16, 32))}'
        raise _bad("buckets", buckets, remedy, WrongTypeError)
    names, open_ended = parameter_names(fn)
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    known = set(names)
    if not open_ended:
        known |= set(inspect.signature(target).parameters)
    for path, value in buckets.items():
        if not isinstance(path, str) or not isinstance(value, Buckets):
            remedy = "map an argument's name or path to ostinato.Buckets(...)"
            raise _bad(f"buckets[{path!r}]", value, remedy, WrongTypeError)
        if not open_ended and path.partition(".")[0] not in known:
            raise UsageError(
                f"buckets names the argument {path!r}, which the callable does not have",
                code="OST1012",
                remedy=f"use one of its arguments: {', '.join(sorted(known)) or 'it has none'}",
            )
    return dict(buckets)


def check_paths(paths: Collection[str], structure: Structure) -> None:
    """Refuse a path of buckets that leads into an argument of a call and finds nothing there.

    An argument that is left out, or None, says nothing about what it may hold.

    Raises:
        UsageError: OST1012, such as "batch.idz" where "batch.ids" is meant.
    """
    known = structure.paths
    for path in sorted(paths):
        root, dot, _ = path.partition(".")
        inside = [each for each in known if each.startswith(f"{root}.")]
        if path not in known and (inside if dot else root not in known and inside):
            raise UsageError(
                f"buckets names {path!r}, and the call has no tensor there",
                code="OST1012",
                remedy=f"use one of its paths: {_listed(inside)}",
            )


def _listed(paths: Sequence[str]) -> str:
    more = [f"and {len(paths) - _MOST_NAMED} more"] if len(paths) > _MOST_NAMED else []
    return ", ".join([*paths[:_MOST_NAMED], *more])


def _checked_scratch(scratch: object) -> tuple[Tensor, ...]:
    remedy = "pass a tuple of the tensors themselves, such as (cache.keys, cache.values)"
    if not isinstance(scratch, tuple | list):
        raise _bad("scratch", scratch, remedy, WrongTypeError)
    for each in scratch:
        if not isinstance(each, Tensor) or each.layout is not torch.strided:
            raise _bad("scratch", each, remedy, WrongTypeError)
    return tuple(scratch)


def _check_whole(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(name, value, f"pass a whole number of at least {least}", WrongTypeError)
    if value < least:
        raise _bad(name, value, f"pass a whole number of at least {least}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    # Not only compared: `==` of an array is no yes or no.
    if not isinstance(value, str) or value not in choices:
        raise _bad(name, value, f"pass one of {', '.join(map(repr, choices))}")


def _bad(name: str, value: object, remedy: str, kind: type[UsageError] = UsageError) -> UsageError:
    return kind(f"{name} cannot be {_shown(value)}", code="OST1011", remedy=remedy)


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
