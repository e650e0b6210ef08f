"""Runs of the garbage collector: how long, and whether in the middle of a step.

Whether a run was long is told by the time that the collector had a CPU: on a machine with more to
do than CPUs a short run may be interrupted for long, and that is not for the collector to answer
for. What all of them took from the steps is told by the clock, which measures the steps too.
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
from ostinato.doctor.interpreter_use import GcPause, GcUse

_MOST = 2000
_WORTH_A_SPAN_US = 200.0
_WARM_UP = 3  # steps: loading and compiling make garbage of their own
_LONG_US = 1e3


class GcPauses:
    """Listens to `gc.callbacks`."""

    name = "gc"

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._pauses: deque[GcPause] = deque(maxlen=_MOST)
        self._brief: deque[GcPause] = deque(maxlen=_MOST)  # they crowd out no long one
        self._runs = self._long = 0
        self._us = self._long_us = 0.0
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
            worked_ns = thread_time_ns() - self._worked_ns
            quietly(self._note, info, worked_ns, perf_counter_ns() - self._began_ns)

    def _note(self, info: dict[str, int], worked_ns: int, took_ns: int) -> None:
        us = worked_ns / 1e3
        began = self._notebook.since_us(self._began_ns)
        here_ = self._notebook.here
        inside = here_.inside and not here_.quiet  # what the doctor does is no part of a step
        slow = us > _WORTH_A_SPAN_US
        if inside:
            long = us >= _LONG_US and self._notebook.steps_ended >= _WARM_UP
            self._runs += 1
            self._us += took_ns / 1e3
            self._long += long
            self._long_us += us * long
        (self._pauses if slow else self._brief).append(
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
        """Return the latest pauses, in their order, and what all of those in steps come to."""
        pauses = sorted((*self._pauses, *self._brief), key=lambda pause: pause.began_us)
        use = GcUse(self._runs, self._us, self._long, self._long_us)
        return {"gc_pauses": tuple(pauses), "gc_use": use}
