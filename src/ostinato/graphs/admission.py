"""Calls without a recording: which are let in to be recorded, and which run eagerly, and why.

`player.py` comes here when no recording fits a call, or when a signature is to be recorded ahead of
its calls. Nothing here stands on the path of a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ostinato.graphs.chronicle import Chronicle
from ostinato.graphs.decision import Decision
from ostinato.graphs.eagerly import Eagerly
from ostinato.graphs.entry import Entry, unfit_at_sight
from ostinato.graphs.fitting import Occasion
from ostinato.graphs.graph import Graph
from ostinato.graphs.job import Made
from ostinato.graphs.options import Options
from ostinato.graphs.placing import place
from ostinato.graphs.reasons import Reason
from ostinato.graphs.recorder import Recorder
from ostinato.graphs.store import Store
from ostinato.graphs.strangers import Strangers
from ostinato.graphs.watch import Change, Watch

MISS: Any = object()
"""What a replay returns where the recording turned out to be unusable."""

_OF_PLACING = frozenset({Reason.SEVERAL_DEVICES, Reason.UNSUPPORTED_DEVICE})

Replay = Callable[[Entry, Graph, Occasion], object]


class Admission:
    """Decides, signature by signature, when to record.

    Args:
        options: As checked.
        store: Where signatures and their recordings are.
        chronicle: Is told what became of a call.
        recorder: Makes the recordings.
        eagerly: Answers the calls that are not let in.
        released: Called after other recordings may have had to go.

    Attributes:
        is_closed: Whether the runner was closed: then nobody is let in.
    """

    def __init__(
        self,
        options: Options,
        store: Store,
        chronicle: Chronicle,
        recorder: Recorder,
        eagerly: Eagerly,
        released: Callable[[], None],
    ) -> None:
        self.is_closed = False
        self._backend = options.backend
        # With on_unfit="raise" nothing may have happened when it raises: record first, on copies.
        self._serves_first = options.on_unfit == "eager"
        self._store = store
        self._chronicle = chronicle
        self._recorder = recorder
        self._eagerly = eagerly
        self._released = released
        self._strangers = Strangers()

    def serve(self, occasion: Occasion, replay: Replay) -> object:
        """Answer a call: run eagerly with a reason, or record.

        Args:
            replay: Answers from a recording that another thread has made meanwhile, or says `MISS`.
        """
        unfit = self._unfit(occasion)
        if unfit is not None:
            return self._eagerly.run(occasion.call, *unfit)
        assert occasion.situation.signature is not None
        entry = self._store.find_or_add(occasion.situation.signature)
        self._judge_at_sight(entry, occasion.watch)
        if entry.refusal is not None:
            return self._eagerly.run(occasion.call, entry.refusal, entry.detail)
        self._store.count_call(entry)
        if entry.calls == 1 and (told := self._strangers.told_of(entry)):
            return self._eagerly.run(occasion.call, Reason.NEW_OBJECT, told)
        if entry.calls < entry.admit_at:
            return self._eagerly.run(occasion.call, entry.waiting_for, entry.detail)
        if not entry.building.acquire(blocking=False):
            return self._eagerly.run(occasion.call, Reason.BEING_RECORDED)
        try:
            return self._admit(entry, occasion, replay)
        finally:
            entry.building.release()

    def _unfit(self, occasion: Occasion) -> tuple[Reason, str] | None:
        """Say why no call of this runner, or none that looks like this, is let in."""
        if self.is_closed:
            return Reason.CLOSED, ""
        if self._backend == "eager":
            return Reason.EAGER_BACKEND, ""
        if occasion.situation.signature is None:
            assert occasion.situation.unfit is not None
            return occasion.situation.unfit
        return None

    def _judge_at_sight(self, entry: Entry, watch: Watch) -> None:
        """Refuse what the signature, or where the weights lie, shows to be impossible."""
        if entry.calls == 0 and entry.refusal is None:
            unfit = unfit_at_sight(entry.signature)
            if unfit is not None:
                entry.refuse(*unfit)
                return
        elif entry.refusal not in _OF_PLACING:
            return
        placed = place(entry.signature, watch.tensors, self._backend)
        if isinstance(placed[0], Reason):
            entry.refusal, entry.detail = placed
        elif unfit_at_sight(entry.signature) is None:
            entry.refusal = None  # `.to()` moved the weights to the arguments

    def _admit(self, entry: Entry, occasion: Occasion, replay: Replay) -> object:
        """Record, unless another thread tried a moment ago, or there is no room."""
        if (graph := entry.graph) is not None:
            answer = replay(entry, graph, occasion)
            if answer is not MISS:
                return answer
        if entry.refusal is not None:
            return self._eagerly.run(occasion.call, entry.refusal, entry.detail)
        if entry.calls < entry.admit_at or not self._store.has_room(entry):
            entry.postpone(entry.waiting_for, entry.detail)
            return self._eagerly.run(occasion.call, entry.waiting_for, entry.detail)
        return self._record(entry, occasion)

    def _record(self, entry: Entry, occasion: Occasion) -> object:
        """Answer the call eagerly and make a recording beside it."""
        serve = self._serves_first
        made = self._make(entry, occasion, is_call=True, serve=serve)
        if made.reason is not None:
            self._tell_unfit(made.reason, made.detail)
            if not made.is_first:
                self._eagerly.raise_if_asked(made.reason, made.detail)
        is_answered = serve and not made.is_unanswered
        answer = made.result if is_answered else self._eagerly.plainly(occasion.call)
        return self._eagerly.owned(answer)

    def _make(self, entry: Entry, occasion: Occasion, *, is_call: bool, serve: bool) -> Made:
        made = self._recorder.record(entry, occasion, is_call=is_call, serve=serve)
        self._released()  # others may have had to go for it
        if made.reason is None:
            assert made.graph is not None
            self._chronicle.made_recording(made.graph, entry.recaptures_for, served=is_call)
            entry.recaptures_for = None
        return made

    def _tell_unfit(self, reason: Reason, detail: str) -> None:
        self._chronicle.ran_eagerly(reason, detail)
        if reason is Reason.PYTHON_SIDE_EFFECT:
            self._chronicle.warn(
                reason,
                f"a Python side effect would not be replayed, so it runs eagerly: {detail}",
            )

    def warm(self, occasion: Occasion, drop_all: Callable[[Change], None]) -> Decision:
        """Record a signature without answering or changing anything.

        Args:
            drop_all: Gives every recording up; called where what they read has moved.
        """
        unfit = self._unfit(occasion)
        if unfit is not None:
            return self.not_made(*unfit)
        assert occasion.situation.signature is not None
        entry = self._store.find_or_add(occasion.situation.signature)
        self._judge_at_sight(entry, occasion.watch)
        with entry.building:
            if entry.refusal is not None:
                return self.not_made(entry.refusal, entry.detail)
            if (graph := entry.graph) is not None:
                moved = graph.moved()
                if moved is None:
                    return graph.decision
                drop_all(moved)
            made = self._make(entry, occasion, is_call=False, serve=False)
            if made.reason is not None:
                return self.not_made(made.reason, made.detail)
        decision = self._chronicle.last
        assert decision is not None
        return decision

    def not_made(self, reason: Reason, detail: str = "") -> Decision:
        """Say why a signature was not recorded ahead of its calls."""
        self._chronicle.not_made(reason, detail)
        self._eagerly.raise_if_asked(reason, detail)
        return Decision.eager(reason, detail)
