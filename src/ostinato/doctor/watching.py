"""Watch a block, or a whole program: starts the collectors, and gathers what they saw.

Whatever a collector does wrong costs its own evidence and no more: it is left out, the evidence
says why, and the watched program goes on. One watch at a time can be on in a process. A forked
child is not watched: it is handed back to itself, as it would be without us.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import torch

from ostinato.class_name import class_name
from ostinato.doctor.collect.assembly import collectors
from ostinato.doctor.collect.collector import Collector
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches, without_patches
from ostinato.doctor.collect.steps import Steps
from ostinato.doctor.collect.subject import describe_subject
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Ending, Evidence
from ostinato.doctor.raised import text_of
from ostinato.doctor.report import Report
from ostinato.errors import UsageError

_SPANS_ON_THE_WAY = _STEPS_ON_THE_WAY = 500  # a save while the program runs takes the GIL from it


@dataclass(frozen=True, slots=True)
class Choices:
    """What to watch, and how closely.

    Attributes:
        profile: Run torch.profiler over a few steps after the warm-up, for kernels and launches.
        trials: Time attention and layout copies both ways, once for each shape; costs a few calls.
        ranges: Mark steps, records and replays with NVTX ranges.
        sample: Look at the threads every few milliseconds, for the GIL and the flame graph.
        host: Read the machine's facts at the end.
        whole_program: The process ends with the watch, so memory may be collected at its end.
    """

    profile: bool = False
    trials: bool = False
    ranges: bool = True
    sample: bool = True
    host: bool = False
    whole_program: bool = False


class Watch:
    """A watch: use it as a context manager, or `start` and `stop` it.

    Safe to start in any thread; what other threads do is seen as well.
    """

    def __init__(self, title: str = "", choices: Choices | None = None) -> None:
        self._title = title
        self._choices = choices or Choices()
        self._notebook = Notebook()
        self._patches = Patches()
        self._steps = Steps(self._notebook, self._patches, ranges=self._choices.ranges)
        self._collectors: list[Collector] = []
        self._evidence: Evidence | None = None
        self._pid = os.getpid()
        self._seconds = 0.0

    def start(self) -> Self:
        """Begin to watch.

        Raises:
            UsageError: OST7023, another watch is on in this process.
        """
        _process.begin(self)
        for collector in collectors(self._notebook, self._patches, self._steps, self._choices):
            try:
                collector.start()
            except Exception as error:  # noqa: BLE001 - one kind of evidence less, and the program goes on
                self._notebook.problem(f"{collector.name} not recorded: {_words(error)}")
            else:
                self._collectors.append(collector)
        self._patches.replace(torch.jit, "script", without_patches(self._patches))
        return self

    def stop(self) -> Evidence:
        """End the watch, and return what was seen; a second time returns the same."""
        if self._evidence is None:
            self._seconds = self._notebook.now_us() / 1e6
            self._release()
            self._evidence = self._gather()
        return self._evidence

    def _release(self) -> None:
        self._notebook.here.quiet = True
        for collector in reversed(self._collectors):
            try:
                collector.stop()
            except Exception as error:  # noqa: BLE001 - the others are stopped all the same
                self._notebook.problem(f"{collector.name} did not stop well: {_words(error)}")
        self._patches.undo()
        self._notebook.here.quiet = False
        _process.end(self)

    def abandon(self) -> None:
        """Leave a forked child as it would be without a watch; its threads did not come along."""
        self._patches.leave_child()
        _process.end(self)

    def _gather(self, most_spans: int | None = None) -> Evidence:
        fields: dict[str, Any] = {}
        collected: list[str] = []
        problems: list[str] = []  # of this time: the next time it may go well
        for collector in self._collectors:
            try:
                fields |= _patiently(collector.fields)
                collected.append(collector.name)
            except Exception as error:  # noqa: BLE001 - the rest of the evidence is still there
                problems.append(f"{collector.name} was lost: {_words(error)}")
        return Evidence(
            subject=describe_subject(self._title, self._seconds),
            collected=tuple(collected),
            spans=self._notebook.spans(most_spans),  # some came with the fields
            problems=(*self._notebook.problems, *problems),
            **fields,
        )

    def so_far(self) -> Evidence:
        """Return what was seen until now, with the latest steps alone; the watch goes on."""
        if self._evidence is not None:
            return self._evidence
        self._seconds = self._notebook.now_us() / 1e6
        gathered = self._gather(_SPANS_ON_THE_WAY)
        return replace(
            gathered,
            subject=replace(gathered.subject, ending=Ending.STILL_RUNNING),
            steps=gathered.steps[-_STEPS_ON_THE_WAY:],
        )

    def ignore_this_thread(self) -> None:
        """Take the calling thread for one of ours: no finding is about it, and no signal for it."""
        self._notebook.own_this_thread()

    def problem(self, text: str) -> None:
        """Say in the evidence that something could not be recorded."""
        self._notebook.problem(text)

    @property
    def evidence(self) -> Evidence:
        """All that was recorded; ends the watch if it is on."""
        return self.stop()

    def report(self) -> Report:
        """Return the findings; ends the watch if it is on. Print it, or `render` it."""
        return diagnose(self.stop())

    @contextmanager
    def step(self, name: str = "step") -> Iterator[None]:
        """Mark the block as one step, where the outermost module's calls are not the steps."""
        with self._steps.mark(name):
            yield

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        evidence = self.stop()
        if error is not None:
            subject = replace(evidence.subject, ending=Ending.RAISED, detail=_words(error))
            self._evidence = replace(evidence, subject=subject)


class _Process:
    """Which watch is on in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active: Watch | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    def begin(self, watch: Watch) -> None:
        with self._lock:
            if self.active is not None:
                raise UsageError(
                    "another watch is on in this process",
                    code="OST7023",
                    remedy="end it first, or mark steps in it with `ostinato.doctor.step()`",
                )
            self.active = watch

    def end(self, watch: Watch) -> None:
        if self.active is watch:
            self.active = None

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        if self.active is not None:
            self.active.abandon()


_process = _Process()


def watch(title: str = "", **choices: bool) -> Watch:
    """Return a watch for a `with` block; see `Choices` for what can be chosen.

    Raises:
        TypeError: a choice that there is not.
    """
    return Watch(title, Choices(**choices))


@contextmanager
def step(name: str = "step") -> Iterator[None]:
    """Mark the block as one step of the watch that is on; without one, do nothing."""
    active = _process.active
    if active is None:
        yield
        return
    with active.step(name):
        yield


def _patiently(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Ask again when a table changed while it was read: other threads may still be at work."""
    for _ in range(5):
        try:
            return ask()
        except RuntimeError as error:
            if "changed size" not in str(error) and "mutated" not in str(error):
                raise
    return ask()


def _words(error: BaseException) -> str:
    text = text_of(error).strip().splitlines()
    return f"{class_name(error)}: {text[0]}" if text else class_name(error)
