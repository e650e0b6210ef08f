"""An interrupt may come between any two instructions: it reaches the caller and nothing stays."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn, overrides
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ostinato.graphs import Buckets, Outcome, Reason, graphed
from ostinato.graphs.inline import runs_inline
from ostinato.graphs.interrupts import run_interruptibly, signals_wait
from ostinato.graphs.observe_python import PythonWatcher

# Where a mode, a hook or a patch comes and goes.
_COMING_AND_GOING = frozenset(
    {
        "__enter__", "__exit__", "take", "give", "enter", "leave", "begin", "end", "fastest",
        "_call_made_by", "_observed", "observe", "make", "record", "_make", "recording_here",
        "python_is_watched", "_put_back", "_push_mode", "_pop_mode", "run_on_fakes", "on_event",
        "signals_wait",
        "__torch_function__", "__torch_dispatch__", "forward", "_no_autocast_cache", "acquire",
    }
)  # fmt: skip
_EVERY = 7  # of the places; all of them take minutes


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return torch.where(x > 0, self.first(x), x.softmax(-1)) + self.count


class _Interrupting:
    """Traces; raises SIGINT at one place, the first time that it comes there."""

    def __init__(self, at: tuple[CodeType, int, str] | None) -> None:
        self.places: dict[tuple[CodeType, int, str], None] = {}
        self._at = at
        self.has_raised = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        return self._within if frame.f_code.co_name in _COMING_AND_GOING else None

    def _within(self, frame: FrameType, event: str, _: object) -> Any:
        place = (frame.f_code, frame.f_lineno, event)
        is_new = place not in self.places
        self.places[place] = None
        if event != "exception" and is_new and place == self._at:
            self.has_raised = True
            signal.raise_signal(signal.SIGINT)
        return self._within


def _run_traced(run: Callable[[], object], tracer: _Interrupting) -> None:
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run()
    finally:
        sys.settrace(before)


def _standing() -> tuple[object, ...]:
    """What a recording sets for a while and has to put back."""
    return (
        _get_current_dispatch_mode_stack(),
        _get_current_function_mode_stack(),
        sys.getprofile(),
        overrides.has_torch_function,
        torch.cuda.is_current_stream_capturing,
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        signal.getsignal(signal.SIGINT),
        signal.getsignal(signal.SIGALRM),
        runs_inline(),
    )


@pytest.mark.parametrize(
    "buckets", [None, {"x": Buckets(dim=0, sizes=(4, 8))}], ids=["exact", "bucketed"]
)
@pytest.mark.parametrize("share", range(2))
def test_an_interrupt_anywhere_in_a_recording_leaves_nothing(
    share: int, buckets: dict[str, Buckets] | None
) -> None:
    x = torch.ones(3, 4)

    def interrupted(at: tuple[CodeType, int, str] | None) -> list[tuple[CodeType, int, str]]:
        model = _Model()
        with torch.inference_mode():
            runner = graphed(model, admit_after=1, backend="tape", buckets=buckets)
            before = _standing()
            has_come = False
            tracer = _Interrupting(at)
            try:
                _run_traced(lambda: runner(x), tracer)
            except KeyboardInterrupt:
                has_come = True
            assert has_come == tracer.has_raised, at
            assert _standing() == before, at
            x.sum().item()
            count = int(model.count)
            assert count <= 1
            for calls in range(1, 4):
                expected = torch.where(x > 0, model.first(x), x.softmax(-1)) + count + calls
                torch.testing.assert_close(runner(x), expected)
            other = graphed(lambda x: x * 2, admit_after=1, backend="tape")
            assert all(other(x).equal(x * 2) for _ in range(3))
            assert other.last is not None
            assert other.last.outcome is Outcome.REPLAYED
        return [place for place in tracer.places if place[2] != "exception"]

    interrupted(None)  # what happens once in a process is over now
    places = interrupted(None)
    assert len(places) > 100
    for place in places[share :: 2 * _EVERY]:
        interrupted(place)


def test_the_callable_s_own_code_is_interrupted_at_once() -> None:
    reached: list[None] = []

    def fn(x: Tensor) -> Tensor:
        signal.raise_signal(signal.SIGINT)
        reached.append(None)
        return x

    with pytest.raises(KeyboardInterrupt), signals_wait():
        run_interruptibly(fn, (torch.ones(1),))
    assert not reached


class _Heard(BaseException):
    """As KeyboardInterrupt, which would end the whole session where a test lets it through."""


@pytest.fixture
def _heard() -> Iterator[None]:
    def hear(number: int, frame: FrameType | None) -> None:
        raise _Heard

    before = signal.signal(signal.SIGINT, hear)
    yield
    signal.signal(signal.SIGINT, before)


def _counter() -> memoryview:
    """A count that no recording puts back: nothing is seen of what stands behind it."""
    return memoryview(bytearray(1))


class _AtLines(_Interrupting):
    """Raises SIGINT at one line of what torch calls, and notes how far the callable was."""

    def __init__(self, at: tuple[CodeType, int, str] | None, reached: memoryview) -> None:
        super().__init__(at)
        self._reached = reached
        self.reached_before = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        is_ours = frame.f_code.co_name in ("__torch_dispatch__", "__torch_function__", "on_call")
        return self._within if is_ours else None

    def _within(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self.reached_before = self.reached_before if self.has_raised else self._reached[0]
            super()._within(frame, event, _)
        return self._within


@pytest.mark.usefixtures("_heard")
def test_an_interrupt_in_the_last_call_of_torch_does_not_wait_for_another() -> None:
    """Behind it there may be an endless loop."""

    def interrupted(at: tuple[CodeType, int, str] | None) -> list[tuple[CodeType, int, str]]:
        reached = _counter()

        def fn(x: Tensor) -> Tensor:
            y = x * 2
            reached[0] += 1
            return y

        tracer = _AtLines(at, reached)
        has_come = False
        try:
            _run_traced(lambda: graphed(fn, admit_after=1, backend="tape")(torch.ones(2)), tracer)
        except _Heard:
            has_come = True
        assert has_come == tracer.has_raised, at
        if has_come:
            assert reached[0] == tracer.reached_before, at
        return list(tracer.places)

    places = interrupted(None)
    assert len(places) > 20
    for place in places:
        interrupted(place)


def _interrupting_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first look of the profiling hook at a builtin be interrupted."""
    look, raised = PythonWatcher._on_builtin, []

    def interrupted(self: PythonWatcher, frame: FrameType, called: Any) -> None:
        if not raised:
            raised.append(None)
            signal.raise_signal(signal.SIGINT)
        look(self, frame, called)

    monkeypatch.setattr(PythonWatcher, "_on_builtin", interrupted)


@pytest.mark.usefixtures("_heard")
def test_an_interrupt_in_the_profiling_hook_is_handled_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _interrupting_hook(monkeypatch)
    reached = _counter()

    def fn(x: Tensor) -> Tensor:
        y = x * 2
        time.perf_counter()
        reached[0] += 1  # an endless loop, say
        return y

    g = graphed(fn, admit_after=1, backend="tape")
    before = _standing()
    with pytest.raises(_Heard):
        g(torch.ones(2))
    assert reached[0] == 0
    assert _standing() == before


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.usefixtures("_heard")
def test_a_run_whose_hook_went_away_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    _interrupting_hook(monkeypatch)

    def fn(x: Tensor) -> Tensor:
        with contextlib.suppress(_Heard):
            time.perf_counter()
        return x * 2

    g = graphed(fn, admit_after=1, backend="tape")
    assert g(torch.ones(2)).tolist() == [2.0, 2.0]
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.PYTHON_SIDE_EFFECT)
    assert "the profiling hook was taken away" in g.last.detail
    for _ in range(8):  # no interrupt comes any more
        assert g(torch.ones(2)).tolist() == [2.0, 2.0]
    assert g.last.outcome is Outcome.REPLAYED


def test_what_a_handler_raises_is_not_taken_for_the_callable_s_own_error() -> None:
    def late(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGINT, late)
    with pytest.raises(TimeoutError), signals_wait(), contextlib.suppress(TimeoutError):
        run_interruptibly(lambda: signal.raise_signal(signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is late


def test_a_handler_that_raises_nothing_runs_once_and_at_the_end_at_the_latest() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    with signals_wait():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert not heard
    assert heard == [signal.SIGINT]


def test_a_handler_that_the_callable_sets_stays() -> None:
    with signals_wait():
        run_interruptibly(signal.signal, (signal.SIGINT, signal.SIG_IGN))
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_hold_up_nothing() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    inside, done = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with signals_wait():
            inside.set()
            done.wait()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    inside.wait()
    signal.raise_signal(signal.SIGINT)
    assert heard == [signal.SIGINT]
    done.set()
    thread.join()


def _raise_two() -> None:
    with signals_wait():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR1)


def test_a_handler_that_raises_does_not_swallow_the_signals_behind_it() -> None:
    told = []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            _raise_two()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == [signal.SIGUSR1]


def test_two_handlers_that_raise_are_both_heard() -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(SystemExit) as caught:
            _raise_two()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(caught.value.__context__, KeyboardInterrupt)
