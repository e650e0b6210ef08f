"""What makes a step or a worker: `graphed(f)`, `torch.compile(f)`, `Thread(target=f)`."""

from __future__ import annotations

from ostinato.doctor.lint.facts import Scope
from ostinato.doctor.lint.operations import known
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import TENSOR, UNKNOWN, Kind, Value

GRAPHED = frozenset(
    {
        "ostinato.graphed",
        "ostinato.accelerate",
        "ostinato.graphs.graphed",
        "torch.cuda.make_graphed_callables",
    }
)
COMPILED = frozenset({"torch.compile", "torch._dynamo.optimize", "torch.jit.script"})
_TARGETS = frozenset(
    {"threading.Thread", "multiprocessing.Process", "torch.multiprocessing.Process"}
)
_SPAWNS = frozenset({"torch.multiprocessing.spawn", "multiprocessing.spawn"})
_EXECUTORS = frozenset(
    {"submit", "map", "apply", "apply_async", "imap", "starmap", "imap_unordered"}
)
_REGISTERS = frozenset({"register_buffer", "register_parameter"})
_FUNCTIONS = (Kind.NAME, Kind.SYMBOL, Kind.INSTANCE, Kind.WRAPPED)


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.function in GRAPHED:
        event.result = wrapped(scene, "graphed", event)
    elif event.function in COMPILED:
        event.result = wrapped(scene, "compiled", event)
    elif event.attr == "compile" and not event.function and _is_bare(event):
        scene.module.wraps.append((Scope.COMPILED, event.base))  # model.compile()
    elif event.function in _TARGETS:
        _worker(scene, event.keyword("target"))
    elif event.function in _SPAWNS or (
        event.attr in _EXECUTORS and not event.function and _is_callable(event.first)
    ):
        _worker(scene, event.first)
    elif event.attr in _REGISTERS:
        _registered(scene, event)
    if event.keywords:
        for word in ("initializer", "worker_init_fn"):
            _worker(scene, event.keyword(word))


def _registered(scene: Scene, event: Event) -> None:
    """Note `self.register_buffer("name", ...)` as the attribute that it makes."""
    word = known(event.first)
    if isinstance(word, str):
        scene.env[f"self.{word}"] = TENSOR


def wrapped(scene: Scene, how: str, event: Event) -> Value:
    """Return what a wrapper gives, and put what it wraps in its scope."""
    inner = event.first
    if not event.args:
        inner = event.keyword("model") or event.keyword("fn") or UNKNOWN
    if inner.kind in _FUNCTIONS and not scene.quiet:
        scene.module.wraps.append((scope_of(how), inner))
    dynamic = known(event.keyword("dynamic"))
    has_buckets = event.keyword("buckets") is not None if how == "graphed" else dynamic is not False
    return Value(Kind.WRAPPED, (how, inner, scene.loops, has_buckets))


def scope_of(how: str) -> Scope:
    """Return the scope that a wrapper puts a function in."""
    return Scope.CAPTURED if how == "graphed" else Scope.COMPILED


def _is_bare(event: Event) -> bool:
    return not event.args and event.base.kind in (Kind.INSTANCE, Kind.SYMBOL)


def _is_callable(value: Value) -> bool:
    return value.kind in (Kind.NAME, Kind.SYMBOL)


def _worker(scene: Scene, value: Value | None) -> None:
    if value is not None and value.kind in _FUNCTIONS and not scene.quiet:
        scene.module.wraps.append((Scope.WORKER, value))
