"""Where the steps are: calls of the outermost module, or what the program marks itself.

Nobody has to say what a step is. Of all modules that were called from outside of any other, the one
with the most time in it makes the steps; a step lasts until the same module is called again, so the
sampling and the bookkeeping between two forwards are part of it. A block that `watch.step()` marks
comes before all of this.
"""

from __future__ import annotations

import threading
import weakref
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import FunctionType
from typing import Any

import torch
from torch.compiler import is_compiling

from ostinato.class_name import class_name
from ostinato.doctor.activity import Callable_, SignatureUse, Step
from ostinato.doctor.collect.gates import asks_inside
from ostinato.doctor.collect.gpu_use import has_gpu
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches, quietly
from ostinato.doctor.collect.places import here
from ostinato.doctor.collect.signature import rows, signature, sizes, words
from ostinato.doctor.finding import Place

_MOST_STEPS = 2000
_MOST_CALLABLES = 64
_MOST_SIGNATURES = 4096
_MOST_WEIGHTS = 16
_IDLE = 5.0  # a gap longer than so many calls, and than 50 ms, is no part of a step
_IDLE_US = 50e3
_LOOK_EVERY = 32  # calls, for weights that moved
_PATIENCE_S = 1.0  # with a thread that is adding up


@dataclass(slots=True)
class _Timed:
    """One step, cheap to make."""

    began_us: float
    us: float
    thread: int
    turn_us: float | None = None


@dataclass(slots=True)
class _Seen:
    """What is known of one outermost callable."""

    name: str
    place: Place | None
    order: int
    steps: deque[_Timed] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    calls: int = 0
    us: float = 0.0
    whole_us: float = 0.0
    with_grad: int = 0
    last: dict[int, _Timed] = field(default_factory=dict)
    signatures: dict[tuple[Any, ...], int] = field(default_factory=dict)
    compiled: bool = False
    captured: str = ""
    pointers: tuple[int, ...] | None = None
    moved: int = 0
    next_look: int = 0
    alive: weakref.ref[Any] | None = None
    later: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Calls that are not added up yet: when they began and ended, in ns, and their thread."""


class Steps:
    """Finds and times the steps."""

    name = "steps"

    def __init__(self, notebook: Notebook, patches: Patches, *, ranges: bool = True) -> None:
        self._notebook = notebook
        self._patches = patches
        self._seen: dict[int, _Seen] = {}
        self._dead: list[_Seen] = []
        self._names: dict[int, str] = {}
        self._marks: _Seen | None = None
        self._ranges = ranges and has_gpu()
        self.listeners: list[Callable[[int], None]] = []
        self.hear_runner: Callable[[Any, int], None] | None = None
        self.hear_on_loop: Callable[[Place | None, int, int], None] | None = None
        self._adding_up = threading.RLock()
        self._in_calls_us = 0.0
        self._is_over = False
        self._loops: dict[int, tuple[int, int]] = {}  # by thread: the first begin, the last end, ns

    def start(self) -> None:
        """Stand before `Module.__call__` and the calls of graphed functions."""
        from ostinato.graphs import Runner

        self._patches.replace(torch.nn.Module, "__call__", self._around)
        self._patches.replace(Runner, "__call__", self._around)

    def stop(self) -> None:
        """Leave calls alone that still come: a module compiled meanwhile has kept ours for good."""
        self._is_over = True

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        threads, in_a_step = self._notebook.threads, self._notebook.inside
        is_inside = asks_inside(lambda: threads.mine.inside)
        goes_on = original is getattr(torch.nn.Module, "_wrapped_call_impl", None)

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if is_inside():  # most calls: of torch's own two functions here one is enough
                if goes_on and module._compiled_call_impl is None:
                    return module._call_impl(*args, **kwargs)
                return original(module, *args, **kwargs)
            local = threads.mine
            if self._is_over or local.quiet or is_compiling():
                return original(module, *args, **kwargs)
            began, ident = perf_counter_ns(), local.ident
            if not local.began:
                self._notebook.stepping.add(ident)
            in_a_step.add(ident)
            self._notebook.begin_step(local)
            result: Any = None
            if self._ranges:
                self._enter(class_name(module))
            try:
                result = original(module, *args, **kwargs)
                return result
            finally:
                ended = perf_counter_ns()
                self._notebook.steps_ended += 1
                if self._ranges or self.listeners:
                    self._leave()
                local.end_step()
                in_a_step.discard(ident)
                seen = None if local.looks else self._seen.get(id(module))
                if (
                    seen is not None
                    and seen.alive is not None
                    and seen.alive() is module
                    and not seen.captured
                    and _get_running_loop() is None
                ):
                    seen.later.append((began, ended, ident))
                else:
                    quietly(self._note, module, args, kwargs, result, began, ended)

        if isinstance(original, FunctionType):
            # torch.compile goes on there, and sees nothing of ours: not even whether we look.
            __call__._torchdynamo_inline = original  # type: ignore[attr-defined]
        return __call__

    @contextmanager
    def mark(self, name: str) -> Iterator[None]:
        """Let the block be one step."""
        local = self._notebook.here
        if local.inside:  # within a step that is marked already
            yield
            return
        began, ident = perf_counter_ns(), local.ident
        self._notebook.stepping.add(ident)
        self._notebook.inside.add(ident)
        local.marked = True
        self._notebook.begin_step(local)
        if self._ranges:
            self._enter(name)
        try:
            yield
        finally:
            ended = perf_counter_ns()
            self._notebook.steps_ended += 1
            if self._ranges or self.listeners:
                self._leave()
            local.marked = False
            local.end_step()
            self._notebook.inside.discard(ident)
            if self._marks is None:
                self._marks = _Seen(name=name, place=here(2), order=0)
            self._marks.later.append((began, ended, ident))
            if local.looks:
                quietly(self._catch_up, self._marks)

    def _enter(self, name: str) -> None:
        words = f"step {name}".encode(errors="replace").decode()  # what NVTX would refuse
        torch.cuda.nvtx.range_push(words)

    def _leave(self) -> None:
        if self._ranges:
            torch.cuda.nvtx.range_pop()
        if self.listeners:
            local = self._notebook.here
            local.quiet = True  # what they ask of the device is no wait of the program's
            for listener in self.listeners:
                quietly(listener, self._notebook.steps_ended)
            local.quiet = False

    def _note(
        self,
        module: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        began: int,
        ended: int,
    ) -> None:
        local = self._notebook.here
        seen = self._seen.get(id(module))
        if seen is not None and seen.alive is not None and seen.alive() is not module:
            self._dead.append(self._seen.pop(id(module)))  # another object at its address
            seen = None
        if seen is None:
            seen = self._known_before(self._meet(module))
            if not seen.calls and len(self._seen) + len(self._dead) >= _MOST_CALLABLES:
                self._add_up(began, ended, local.ident)
                return
            seen = self._seen.setdefault(id(module), seen)  # unless another thread was first
        seen.later.append((began, ended, local.ident))
        self._catch_up(seen)
        if self.hear_on_loop is not None and _get_running_loop() is not None:
            self.hear_on_loop(seen.place, began, ended)
        if seen.captured == "graphed" and self.hear_runner is not None:
            self.hear_runner(module, seen.calls)
        if local.looks:
            self._notebook.note(self._look, seen, module, args, kwargs, result)

    def _look(self, seen: _Seen, module: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note what a call was given, and what came out."""
        local = self._notebook.here
        key = signature(args, kwargs)
        local.size = rows(key)
        if key in seen.signatures or len(seen.signatures) < _MOST_SIGNATURES:
            seen.signatures[key] = seen.signatures.get(key, 0) + 1
        if _has_history(result):
            seen.with_grad += local.weight
        if seen.calls >= seen.next_look:
            seen.next_look = seen.calls + _LOOK_EVERY
            _look_at_weights(seen, module)

    def _meet(self, module: Any) -> _Seen:
        inner = module._orig_mod if class_name(module) == "OptimizedModule" else None
        named = module if inner is None else inner
        seen = _Seen(name=_name(named), place=here(3), order=len(self._seen) + len(self._dead))
        seen.alive = weakref.ref(module)
        seen.compiled = inner is not None
        seen.captured = "graphed" if class_name(module) == "Runner" else ""
        return seen

    def _known_before(self, met: _Seen) -> _Seen:
        """Return the books of a module that is gone, if this one was made to take its place."""
        for key, seen in list(self._seen.items()):
            if seen.alive is None or seen.alive() is None:
                self._dead.append(self._seen.pop(key))
        for seen in self._dead:
            if seen.name == met.name and _same_line(seen.place, met.place):
                self._dead.remove(seen)
                seen.alive = met.alive
                return seen
        return met

    def _catch_up(self, seen: _Seen, patience_s: float = 0.0) -> None:
        """Add up the calls that wait for it; whoever comes while another does leaves it to that."""
        if not self._adding_up.acquire(timeout=patience_s):
            return
        try:
            while seen.later:
                call = seen.later.popleft()
                self._add_up(*call)
                self._time(seen, *call)
        finally:
            self._adding_up.release()

    def _add_up(self, began_ns: int, ended_ns: int, thread: int) -> None:
        self._in_calls_us += (ended_ns - began_ns) / 1e3
        first_ns = self._loops[thread][0] if thread in self._loops else began_ns
        self._loops[thread] = (first_ns, ended_ns)

    def _time(self, seen: _Seen, began_ns: int, ended_ns: int, thread: int) -> None:
        timed = _Timed(self._notebook.since_us(began_ns), (ended_ns - began_ns) / 1e3, thread)
        last = seen.last.get(thread)
        if last is not None:
            gap = timed.began_us - last.began_us - last.us
            if gap < max(_IDLE * last.us, _IDLE_US):
                last.turn_us = timed.began_us - last.began_us
                seen.whole_us += gap
        elif thread not in self._names:
            self._names[thread] = _name_of(thread)
        seen.last[thread] = timed
        seen.steps.append(timed)
        seen.calls += 1
        seen.us += timed.us
        seen.whole_us += timed.us
        self._notebook.span("step", seen.name, timed.began_us, timed.us)

    def main(self) -> _Seen | None:
        """Return what makes the steps: the marks, else the callable with most time in it."""
        if self._marks is not None:
            return self._marks
        everything = self._everything()
        if not everything:
            return None
        dearest = max(everything, key=lambda seen: seen.us)
        alike = [s for s in everything if abs(s.calls - dearest.calls) <= dearest.calls / 8]
        return min(alike, key=lambda seen: seen.order) if len(alike) > 1 else dearest

    def _before_and_after(self, loops: list[tuple[int, int]]) -> dict[str, float]:
        """Return how long nobody had begun a step, and for how long the last one has been over."""
        if not loops:
            return {}
        first_us = self._notebook.since_us(min(began for began, _ in loops))
        last_us = self._notebook.since_us(max(ended for _, ended in loops))
        return {"before_us": first_us, "after_us": self._notebook.now_us() - last_us}

    def _step(self, timed: _Timed) -> Step:
        name = self._names.get(timed.thread, "a thread")
        return Step(timed.began_us, timed.us, timed.turn_us, name)

    def _everything(self) -> list[_Seen]:
        return [*self._dead, *self._seen.values()]

    def fields(self) -> dict[str, Any]:
        """Return the steps and every callable that was seen."""
        for seen in [*self._everything(), *([self._marks] if self._marks else [])]:
            self._catch_up(seen, _PATIENCE_S)
        main = self.main()
        loops = list(self._loops.values())
        return {
            "step_name": main.name if main else "",
            "steps_seen": main.calls if main else 0,
            "whole_us": main.whole_us if main else 0.0,
            "in_calls_us": self._in_calls_us,
            "loop_us": sum(ended - began for began, ended in loops) / 1e3,
            **self._before_and_after(loops),
            "steps": tuple(self._step(timed) for timed in list(main.steps)) if main else (),
            "looks": self._notebook.looks(),
            "callables": tuple(_callable(seen) for seen in self._everything()),
        }


def _same_line(one: Place | None, other: Place | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.path, one.line) == (other.path, other.line)


def _callable(seen: _Seen) -> Callable_:
    uses = sorted(seen.signatures.items(), key=lambda item: -item[1])[:256]
    return Callable_(
        name=seen.name,
        place=seen.place,
        calls=seen.calls,
        us=seen.us,
        signatures=tuple(SignatureUse(words(key), sizes(key), calls) for key, calls in uses),
        captured=seen.captured,
        compiled=seen.compiled,
        with_grad=seen.with_grad,
        moved_weights=seen.moved,
    )


def _name_of(thread: int) -> str:
    alive = threading._active.get(thread)  # type: ignore[attr-defined]
    return "a thread" if alive is None else str(alive.name)


def _name(module: Any) -> str:
    if class_name(module) == "Runner":
        return str(getattr(module.fn, "__name__", class_name(module.fn)))
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name)
    return class_name(module)


def _has_history(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return result.requires_grad
    if isinstance(result, tuple | list):
        return any(_has_history(item) for item in result[:4])
    logits = getattr(result, "logits", None)
    return isinstance(logits, torch.Tensor) and logits.requires_grad


def _look_at_weights(seen: _Seen, module: Any) -> None:
    """Notice parameters that lie elsewhere than before: a recording would have lost them."""
    if not isinstance(module, torch.nn.Module):
        return
    pointers = []
    for index, parameter in enumerate(module.parameters()):
        if index >= 32:
            break
        pointers.append(parameter.data_ptr())
    now = tuple(pointers)
    if seen.pointers is not None and now != seen.pointers:
        seen.moved += 1
    seen.pointers = now
