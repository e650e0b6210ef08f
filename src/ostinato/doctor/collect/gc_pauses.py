"""Runs of the garbage collector: how long, and whether in the middle of a step.

What counts is the time that the collector had a CPU. On a machine with more to do than CPUs a short
run may be interrupted for long; that is not for the collector to answer for.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from time import perf_counter_ns, thread_time_ns
from typing import Any

from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import quietly
from ostinato.doctor.collect.places import here
from ostinato.doctor.interpreter_use import GcPause

_MOST = 2000
_WORTH_A_SPAN_US = 200.0


class GcPauses:
    """Listens to `gc.callbacks`."""

    name = "gc"

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._pauses: deque[GcPause] = deque(maxlen=_MOST)
        self._began_ns = 0
        self._worked_ns = 0
        self._pid = os.getpid()

    def start(self) -> None:
        """Listen."""
        gc.callbacks.append(self._hear)

    def stop(self) -> None:
        """Listen no more."""
        if self._hear in gc.callbacks:
            gc.callbacks.remove(self._hear)

    def _hear(self, phase: str, info: dict[str, int]) -> None:
        if os.getpid() != self._pid:  # a forked child, which nobody watches
            self.stop()
        elif phase == "start":
            self._began_ns, self._worked_ns = perf_counter_ns(), thread_time_ns()
        elif self._began_ns:
            # A run begins and ends on one thread, so that the clock of this thread measures it.
            quietly(self._note, info, thread_time_ns() - self._worked_ns)

    def _note(self, info: dict[str, int], worked_ns: int) -> None:
        us = worked_ns / 1e3
        began = self._notebook.since_us(self._began_ns)
        here_ = self._notebook.here
        inside = here_.inside and not here_.quiet  # what the doctor does is no part of a step
        slow = us > _WORTH_A_SPAN_US
        self._pauses.append(
            GcPause(
                generation=info.get("generation", 0),
                began_us=began,
                us=us,
                collected=info.get("collected", 0),
                in_step=inside,
                place=here(3) if slow else None,
            )
        )
        if slow:
            self._notebook.span("gc", f"gc generation {info.get('generation', 0)}", began, us)

    def fields(self) -> dict[str, Any]:
        """Return the latest pauses."""
        return {"gc_pauses": tuple(self._pauses)}
