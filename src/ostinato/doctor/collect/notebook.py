"""What all collectors of one watch share: the clock, who is inside a step, and the spans.

Reading it costs no lock: each thread has its own part.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable
from random import Random
from time import perf_counter_ns, thread_time_ns
from types import CodeType
from typing import Any

from ostinato.doctor.collect import gates
from ostinato.doctor.collect.patches import quietly
from ostinato.doctor.evidence import Looks, Span
from ostinato.doctor.finding import Place
from ostinato.doctor.pace import Pace

MOST_TIMES = 128
"""Of one line that are kept, the latest: for the median and the spread."""

_MOST_SPANS = 4000  # as many as a page draws
_OF_A_CRASH = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


WaitListener = Callable[[str, Place | None, float, int], None]
"""Told of an operation that waited, its line, for how many us, and how many such it stands for."""


class Here:
    """What one thread is doing.

    Attributes:
        inside: In a step: an outermost call, or a block that `watch.step()` marks.
        began: A step began on this thread before, so what happens now lies between steps.
        size: Rows or tokens that the latest step was given.
        quiet: The doctor itself is at work, or an operation that was noted already.
        copied: Which tensor was last taken to the host, and by which code.
        waited: What the thread waited at since its step began.
        looks: What happens now is noted. It is in the first steps of the thread, and then in as
            many as `Pace` allows, chosen by lot.
        weight: How many steps the one that is noted stands for: those since the last, and itself.
        spent_ns: What the notes on it have taken until now.
    """

    __slots__ = (
        *("ident", "inside", "began", "marked", "size", "quiet", "copied", "waited"),
        *("looks", "weight", "spent_ns", "_begun", "_looked_at", "_next"),
        "_worked_ns",
    )

    def __init__(self) -> None:  # once in each thread
        self.ident = threading.get_ident()
        self.inside = self.began = self.marked = self.quiet = False
        self.size = 0
        self.copied: tuple[int, CodeType] | None = None
        self.waited: set[object] = set()
        self.looks, self.weight, self.spent_ns = True, 1, 0
        self._begun = self._looked_at = self._next = 0
        self._worked_ns = 0

    def begin_step(self, pace: Pace, lot: Random) -> None:
        """Go on to the thread's next step, and choose whether to look at it."""
        self.waited.clear()
        self._begun += 1
        self.inside = self.began = True
        gates.be_inside(True)
        if self._begun == 1:
            self._meet(pace, lot)
        elif self.looks:
            self._learn(pace)
        looks = self._begun >= self._next
        if looks is not self.looks:
            self.looks = looks
            gates.pass_over(not looks)
        if looks:
            self.weight, self._looked_at = self._begun - self._looked_at, self._begun
            self._next = self._begun + 1 + pace.passed_over(self._begun, lot)
            self.spent_ns = 0
            pace.looks += 1

    def end_step(self) -> None:
        """Hear that the step is over; what follows lies between steps."""
        self.inside = False
        gates.be_inside(False)

    def _meet(self, pace: Pace, lot: Random) -> None:
        """Choose whether to look at the first step: it stands for those of other new threads."""
        self._worked_ns = thread_time_ns()
        if not pace.looks_at_all(1) and lot.randrange(pace.one_of):
            self._next = 2 + pace.passed_over(1, lot)
            self._looked_at = 1
        elif not pace.looks_at_all(1):
            self._looked_at = 1 - pace.one_of

    def _learn(self, pace: Pace) -> None:
        """Tell what the step that ends took to look at, of the CPU time that steps took lately."""
        worked_ns = thread_time_ns()
        pace.learn(self.spent_ns, (worked_ns - self._worked_ns) / self.weight)
        self._worked_ns = worked_ns


class Threads(threading.local):
    """What the thread that asks is doing: `mine`."""

    def __init__(self) -> None:  # once in each thread
        self.mine = Here()


class Notebook:
    """Shared by the collectors of one watch."""

    def __init__(self) -> None:
        self._zero_ns = perf_counter_ns()
        gates.begin()
        self.threads = Threads()
        self.lot = Random(0)  # the program has use for its own
        self.pace = Pace()
        self._spans: deque[tuple[str, str, float, float]] = deque(maxlen=_MOST_SPANS)
        self.wait_listeners: list[WaitListener] = []
        self.problems: list[str] = []
        self.own_threads: set[int] = set()
        self.stepping: set[int] = set()  # threads that have begun a step
        self.inside: set[int] = set()  # threads that are in one
        self.passing_over: set[int] = set()  # threads that do not look at it
        self.turn_listeners: list[Callable[[], None]] = []
        self.steps_ended = 0

    @property
    def here(self) -> Here:
        """What the thread that asks is doing."""
        return self.threads.mine

    def own_this_thread(self) -> None:
        """Take the calling thread for one of ours: no finding is about it, and no signal for it.

        A signal that the program keeps back from its threads, to wait for it, must not find one of
        ours instead.
        """
        self.own_threads.add(threading.get_ident())
        self.here.quiet = True
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_A_CRASH)

    def begin_step(self, here: Here) -> None:
        """Go on to the next step of the calling thread, whose `here` it is."""
        looked = here.looks
        here.begin_step(self.pace, self.lot)
        if here.looks is not looked:
            (self.passing_over.discard if here.looks else self.passing_over.add)(here.ident)
            for listener in self.turn_listeners:
                quietly(listener)

    def note(self, record: Callable[..., None], *args: Any) -> None:
        """Call `record` quietly, and count the time it takes as ours."""
        began = perf_counter_ns()
        quietly(record, *args)
        self.threads.mine.spent_ns += perf_counter_ns() - began

    def looks(self) -> Looks:
        """Return at how many steps was looked, and what it took."""
        pace = self.pace
        return Looks(pace.looks, self.steps_ended, pace.one_of, pace.spent_ns / 1e3)

    def now_us(self) -> float:
        """Return the time since the watch began."""
        return (perf_counter_ns() - self._zero_ns) / 1e3

    def since_us(self, stamp_ns: int) -> float:
        """Return when `stamp_ns` of `perf_counter_ns` was, since the watch began."""
        return (stamp_ns - self._zero_ns) / 1e3

    def span(self, track: str, name: str, began_us: float, us: float) -> None:
        """Keep something for the timeline; the oldest are forgotten."""
        self._spans.append((track, name, began_us, us))  # a plain tuple: it is made in every step

    def spans(self, most: int | None = None) -> tuple[Span, ...]:
        """Return what was kept for the timeline: so many at most, the latest."""
        return tuple(Span(*span) for span in list(self._spans)[-(most or _MOST_SPANS) :])

    def problem(self, text: str) -> None:
        """Say once that something could not be recorded."""
        if text not in self.problems:
            self.problems.append(text)
