"""Writes what a watch has seen to a file: now and then, and at the end.

The end may come from any thread and more than once: a script that is through, `os._exit` in a
thread, a signal. The first one writes; the others wait for it, but not for ever, because the first
one may be the very thread that the other has interrupted.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from time import perf_counter, thread_time

from ostinato.doctor.collect.bell import Bell
from ostinato.doctor.collect.own_thread import OwnThread
from ostinato.doctor.evidence import Ending, Evidence, to_json
from ostinato.doctor.saving import FIRST_SAVE_S, pause_s
from ostinato.doctor.watching import Watch

_PATIENCE_S = 5.0


class Keeper:
    """Keeps the evidence of one watch in one file."""

    def __init__(self, watch: Watch, path: Path) -> None:
        self._watch = watch
        self._path = path
        self._pid = os.getpid()
        self._stop, self._done = Bell(), Bell()
        self._first = threading.Lock()
        self._writing = threading.Lock()
        self._ended = False
        self._thread = OwnThread(self._run)

    def start(self) -> None:
        """Begin to write now and then."""
        self._thread.start()

    def _run(self) -> None:
        self._watch.ignore_this_thread()
        started = perf_counter()
        pause = FIRST_SAVE_S
        while not self._stop.wait(pause):
            seen, worked = perf_counter() - started, thread_time()
            self.save()
            pause = pause_s(seen, thread_time() - worked)

    def save(self, ending: Ending = Ending.STILL_RUNNING) -> None:
        """Write what was seen so far; the watch goes on."""
        if os.getpid() != self._pid or not self._writing.acquire(timeout=_PATIENCE_S):
            return
        try:
            if not self._ended:
                evidence = self._watch.so_far()
                self._write(replace(evidence, subject=replace(evidence.subject, ending=ending)))
        except Exception as error:  # noqa: BLE001 - the next one, or the last one, may succeed
            self._watch.problem(f"evidence was not saved on the way: {error!r}")
        finally:
            self._writing.release()

    def finish(self, ending: Ending, detail: str = "", status: int = 0) -> None:
        """Write the last evidence; only once, and only in the process that was asked to."""
        if os.getpid() != self._pid:
            return
        if not self._first.acquire(blocking=False):
            self._done.wait(_PATIENCE_S)
            return
        self._ended = True
        self._stop.ring()
        got = self._writing.acquire(timeout=_PATIENCE_S)
        try:
            evidence = self._watch.stop()
            subject = replace(evidence.subject, ending=ending, detail=detail, exit_status=status)
            try:
                self._write(replace(evidence, subject=subject))
            except Exception as error:  # noqa: BLE001 - the program has its end all the same
                lost = f"the evidence could not be written: {error!r}"
                self._write(Evidence(subject=subject, problems=(*evidence.problems, lost)))
        finally:
            if got:
                self._writing.release()
            self._done.ring()

    def abandon(self) -> None:
        """Write nothing any more."""
        self._ended = True
        self._stop.ring()
        if self._first.acquire(blocking=False):
            self._done.ring()

    def _write(self, evidence: Evidence) -> None:
        draft = self._path.with_suffix(f".{threading.get_ident()}")
        # Names of threads and files need not be text that UTF-8 has.
        draft.write_text(to_json(evidence), encoding="utf-8", errors="replace")
        draft.replace(self._path)
