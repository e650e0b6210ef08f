"""Makes the recordings of one runner and decides whether they stay: does it pay, does it fit?"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ostinato.graphs import capture
from ostinato.graphs.aten_calls import storage_id
from ostinato.graphs.backends.memory import WorkingMemory
from ostinato.graphs.chronicle import Chronicle
from ostinato.graphs.entry import Entry
from ostinato.graphs.fitting import Occasion
from ostinato.graphs.graph import Graph
from ostinato.graphs.interrupts import signals_wait
from ostinato.graphs.job import Job, Made, Rules
from ostinato.graphs.options import Options
from ostinato.graphs.placing import place
from ostinato.graphs.reasons import Reason
from ostinato.graphs.store import Store
from ostinato.units import format_bytes, format_us


class Recorder:
    """Records signatures of one callable.

    Attributes:
        backend_name: Of the latest recording; before it, as asked for.
    """

    def __init__(
        self, fn: Callable[..., Any], options: Options, store: Store, chronicle: Chronicle
    ) -> None:
        self._fn = fn
        self._options = options
        self._store = store
        self._chronicle = chronicle
        self._serial = itertools.count(1)
        self._rules = Rules()
        self._memory = WorkingMemory() if options.memory == "shared" else None
        self.backend_name: str = options.backend

    def record(self, entry: Entry, occasion: Occasion, *, is_call: bool, serve: bool) -> Made:
        """Make a recording, beside answering the call where `serve` says so.

        Args:
            is_call: Whether a call waits for an answer, counted already.

        Returns:
            The answer, and why the recording was not made or not kept. The account is given here; a
            call that is left unanswered is the caller's to deal with.

        Raises:
            Exception: Whatever the callable raises when it answers the call.
            BaseException: What goes through in whichever run it comes, such as SystemExit.
        """
        epoch = self._store.epoch
        ran = entry.calls - is_call
        job = self._job(entry, occasion, epoch, ran=ran, serve=serve)
        if not isinstance(job, Job):
            entry.refuse(*job)
            return Made(reason=job[0], detail=job[1], is_unanswered=True)
        try:
            with signals_wait():
                made = capture.make(job)
                self._settle(entry, made, epoch)
        except BaseException as error:
            # The caller's own error, raised by the run that was to answer the call; or an exit,
            # which a later call must not come to again only because it tries to record.
            reason, detail = _broken_off_by(error)
            if not isinstance(error, KeyboardInterrupt):  # says nothing of the callable
                entry.postpone(reason, detail)
            (self._chronicle.ran_eagerly if is_call else self._chronicle.not_made)(reason, detail)
            raise
        return made

    def _settle(self, entry: Entry, made: Made, epoch: int) -> None:
        if made.graph is not None:
            self._take_in(entry, made, made.graph, epoch)
        elif self._store.epoch != epoch:  # whatever went wrong, something was replaced meanwhile
            made.reason, made.detail = self._store.lost_for, "replaced while it was recorded"
            made.is_final, made.is_first = False, True
        if made.reason is not None:
            _note_unfit(entry, made)

    def _job(
        self, entry: Entry, occasion: Occasion, epoch: int, *, ran: int, serve: bool
    ) -> Job | tuple[Reason, str]:
        placed = place(entry.signature, occasion.watch.tensors, self._options.backend)
        if isinstance(placed[0], Reason):
            return placed
        device, backend = placed
        self.backend_name = backend.name
        return Job(
            fn=self._fn,
            signature=entry.signature,
            graph_id=f"{self._chronicle.name}#{next(self._serial)}",
            call=occasion.call,
            leaves=occasion.leaves,
            fits=occasion.situation.fits,
            axes=occasion.situation.axes,
            watch=occasion.watch,
            backend=backend,
            device=device,
            serve=serve,
            warmups=max(0, self._options.warmups - ran),
            ran_before=ran > 0,
            measure=self._options.drop_unprofitable and self.backend_name != "tape",
            epoch=epoch,
            rules=self._rules,
            scratch=frozenset(map(storage_id, self._options.scratch)),
            memory=self._memory,
        )

    def _take_in(self, entry: Entry, made: Made, graph: Graph, epoch: int) -> None:
        """Keep a new recording if it pays and fits; else say why not."""
        if self._does_not_pay(graph):
            graph.release()
            made.graph, made.reason = None, Reason.UNPROFITABLE
            eager, replay = format_us(graph.eager_us), format_us(graph.replay_us)
            made.detail = f"a replay took {replay}, eager {eager}"
            return
        gone = self._store.keep(entry, graph, epoch)
        if isinstance(gone, Reason):
            graph.release()
            made.graph, made.reason, made.is_final = None, gone, False
            if gone is Reason.OVER_BUDGET:
                entry.needs = graph.bytes, graph.saved_us
                needed = f"it needs {format_bytes(graph.bytes)}"
                made.detail = f"{needed} of the {format_bytes(self._options.budget_bytes)} budget"
                made.is_final = graph.bytes > self._options.budget_bytes
            return
        for leaving in gone:
            leaving.release()
            self._chronicle.dropped(leaving, Reason.OVER_BUDGET, "evicted for another recording")

    def _does_not_pay(self, graph: Graph) -> bool:
        is_judged = self._options.drop_unprofitable and self.backend_name != "tape"
        return is_judged and graph.replay_us >= graph.eager_us


def _broken_off_by(error: BaseException) -> tuple[Reason, str]:
    """Say why there is no recording; that somebody wants to stop is no failure of it."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return Reason.NOT_ADMITTED_YET, f"{type(error).__name__} came while it was being recorded"
    return Reason.CAPTURE_ERROR, first_line(error)


def first_line(error: BaseException) -> str:
    """Say an error in one line."""
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


def _note_unfit(entry: Entry, made: Made) -> None:
    assert made.reason is not None
    if made.is_final:
        entry.refuse(made.reason, made.detail)
    elif made.is_first:
        entry.wait_for_next(made.reason, made.detail)
    else:
        entry.postpone(made.reason, made.detail)
