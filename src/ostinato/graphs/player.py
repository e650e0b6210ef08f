"""The path of a call: sign, look up, replay; or run eagerly and say why.

`Player.call` is the path; weights and shadow replays stand beside it. A call without a recording
goes to `admission.py`, and from there to `recorder.py` or to `eagerly.py`: it runs eagerly with a
`Reason`, an outcome, never silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ostinato.errors import OstinatoError
from ostinato.graphs import shadow
from ostinato.graphs.admission import MISS, Admission
from ostinato.graphs.chronicle import Chronicle
from ostinato.graphs.decision import Decision
from ostinato.graphs.drawing import drawing_run
from ostinato.graphs.eagerly import Eagerly
from ostinato.graphs.entry import Entry
from ostinato.graphs.fitting import Call, Fitting, Occasion, Situation
from ostinato.graphs.foreign import ALIASES
from ostinato.graphs.graph import Graph
from ostinato.graphs.inline import runs_inline
from ostinato.graphs.options import Options, parameter_names
from ostinato.graphs.reasons import Reason
from ostinato.graphs.recall import Recall, Recalls
from ostinato.graphs.recorder import Recorder, first_line
from ostinato.graphs.store import Store
from ostinato.graphs.unreadable import unreadable_argument
from ostinato.graphs.watch import Change, recalls
from ostinato.graphs.watches import Watches


class Player:
    """Answers the calls of one runner.

    Args:
        fn: The callable.
        options: As checked.
        name: The runner's, in events and logs.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, name: str) -> None:
        self._fn = fn
        self._options = options
        self._is_leased = options.outputs == "leased"
        self._verify_every = options.verify_every
        self.store = Store(options.budget_bytes, options.admit_after)
        self.chronicle = Chronicle(name)
        self.watches = Watches(fn)
        self.recorder = Recorder(fn, options, self.store, self.chronicle)
        self._recalls = Recalls()
        self._eagerly = Eagerly(fn, options, self.chronicle)
        self._admission = Admission(
            options,
            self.store,
            self.chronicle,
            self.recorder,
            self._eagerly,
            self._recalls.prune,
        )
        self._names, _ = parameter_names(fn)
        # Bound once: these run on every call.
        fitting = Fitting(fn, options.buckets)
        self._open = fitting.open
        self._sign = fitting.sign
        self._watch_over = self.watches.over
        self._find = self.store.find
        self._note_replay = self.chronicle.replayed

    def call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """Answer one call."""
        for recall in self._recalls.known:
            if recalls(recall.then, args, kwargs):
                answer = self._replay_at_once(recall, args, kwargs)
                if answer is not MISS:
                    return answer
                break
        if runs_inline():
            return self._fn(*args, **kwargs)
        try:
            leaves, structure = self._open(args, kwargs)
            watch = self._watch_over(leaves, structure, self)
            situation = self._sign(leaves, structure, watch.training_key())
            signature = situation.signature
            entry = None if signature is None else self._find(signature)
        except Exception as error:
            told = self._unreadable(error, args, kwargs)
            if told is None:
                raise
        else:
            occasion = Occasion(situation, leaves, (args, kwargs), watch)
            # Read once: another thread may take it away.
            if entry is not None and (graph := entry.graph) is not None:
                answer = self._replay(entry, graph, occasion)
                if answer is not MISS:
                    return answer
            return self._admission.serve(occasion, self._replay)
        return self._eagerly.run((args, kwargs), Reason.UNSUPPORTED_INPUT, told)

    def _unreadable(
        self, error: Exception, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> str | None:
        """Say which argument raised `error` when it was looked at; None if none did."""
        if isinstance(error, OstinatoError | Warning):  # said on purpose
            return None
        return unreadable_argument(self._names, args, kwargs)

    def _replay_at_once(
        self, recall: Recall, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Answer a call that is as one before; `MISS` if the long way has to be gone after all."""
        graph = recall.graph
        if not graph.lock.acquire(False):  # by the time it is free, what was found out may be old
            return MISS
        try:
            if graph.is_released or recall.entry.graph is not graph:
                return MISS
            if graph.padding is not recall.padding:  # weights are others: compare once more
                return MISS
            leaves: Sequence[object] = args
            if not recall.is_plain:
                if not recall.may_answer(args, kwargs):
                    return MISS
                leaves = recall.leaves(args, kwargs)
            situation = recall.situation
            try:
                if recall.straight is not None and not self._is_leased:
                    answer = recall.straight(args[0])
                else:
                    answer = self._run(graph, leaves, situation)
            except Exception as error:  # noqa: BLE001 - the device's, of whatever type
                self.give_up(recall.entry, graph, error)
                return MISS
            self._note_replay(graph, situation.padded_rows, situation.real_rows)
            return answer
        finally:
            graph.lock.release()

    def _replay(self, entry: Entry, graph: Graph, occasion: Occasion) -> object:
        """Answer from the recording; `MISS` if it turned out to be unusable."""
        situation, leaves, call, _ = occasion
        if graph.unlike_at_one and 1 in situation.sizes:
            return self._eagerly.run(call, Reason.OUTPUT_SIZE_UNKNOWN, graph.unlike_at_one)
        with graph.lock:
            if graph.is_released:
                return MISS
            moved = graph.moved()
            aliases = moved is None and graph.foreign is not None and graph.foreign.meets(leaves)
            if moved is None and not aliases:
                known = graph.padding
                is_unknown = known is not None and situation.sizes not in known.trusted
                if is_unknown or self._verify_every:  # noqa: SIM102 - asked first
                    if self._wants_shadow(graph, situation):
                        return self._shadow(entry, graph, situation, leaves, call)
                try:
                    answer = self._run(graph, leaves, situation)
                except Exception as error:  # noqa: BLE001 - the device's, of whatever type
                    self.give_up(entry, graph, error)
                    return MISS
                self._note_replay(graph, situation.padded_rows, situation.real_rows)
                if not self._verify_every:
                    self._remember(entry, graph, occasion)
                return answer
        if moved is None:
            return self._eagerly.run(call, Reason.UNSUPPORTED_INPUT, ALIASES)
        self.drop_all(moved)
        return MISS

    def _remember(self, entry: Entry, graph: Graph, occasion: Occasion) -> None:
        """Answer the next call of the kind at once, if that can be."""
        situation, leaves, call, watch = occasion

        def sign() -> Situation:
            return self._sign(*self._open(*call), watch.training_key())

        self._recalls.note(call, leaves, watch, (entry, graph, situation), sign)

    def _run(self, graph: Graph, leaves: Sequence[object], situation: Situation) -> object:
        if graph.draws:
            with drawing_run():
                return graph.run(leaves, situation.sizes, leased=self._is_leased)
        return graph.run(leaves, situation.sizes, leased=self._is_leased)

    def find(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[Entry, Graph] | None:
        """Return the recording that is fit to answer such a call without more ado, if there is one.

        Nothing is counted. Not one that a shadow replay is due for, nor one whose weights moved.
        """
        leaves, structure = self._open(args, kwargs)
        watch = self._watch_over(leaves, structure, self)
        situation = self._sign(leaves, structure, watch.training_key())
        entry = None if situation.signature is None else self._find(situation.signature)
        graph = None if entry is None else entry.graph
        if entry is None or graph is None or self._verify_every:
            return None
        if not graph.trusts(situation.sizes):
            return None
        if graph.moved() is not None or (graph.foreign and graph.foreign.meets(leaves)):
            return None
        return entry, graph

    def give_up(self, entry: Entry, graph: Graph, error: Exception) -> None:
        """A replay failed. An eager run answers, unless state that the replay moved forbids it."""
        self._quarantine(entry, graph, Reason.REPLAY_ERROR, first_line(error))
        if isinstance(error, torch.OutOfMemoryError):
            entry.reconsider()  # the recording was not to blame
        if graph.written_externals:
            # Buffers or a cache may have moved on: another run would move them twice.
            self.chronicle.ran_eagerly(Reason.REPLAY_ERROR, first_line(error), graph.graph_id)
            raise error

    # Beside the path: weights and attributes.

    def lose(self, change: Change) -> list[Graph]:
        """Take every recording out of use."""
        return self.store.lose_all(change.reason)

    def tell(self, change: Change, gone: list[Graph]) -> None:
        """Release recordings that are out of use, and say why."""
        for graph in gone:
            graph.release()
            self.chronicle.dropped(graph, change.reason, change.text)
        self._recalls.prune()
        if gone and change.reason is Reason.ATTRIBUTE_CHANGED:
            self.chronicle.warn(
                change.reason,
                f"{change.text}; a recording freezes it, so it is made anew",
                about=change.place,
            )

    def drop_all(self, change: Change) -> None:
        """Give every recording up; each signature is recorded anew when it comes again."""
        self.tell(change, self.lose(change))

    # Beside the path: recording ahead of a call.

    def warm(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Decision:
        """Record one signature without answering or changing anything."""
        try:
            leaves, structure = self._open(args, kwargs)
            watch = self.watches.over(leaves, structure, self)
            situation = self._sign(leaves, structure, watch.training_key())
        except Exception as error:
            told = self._unreadable(error, args, kwargs)
            if told is None:
                raise
            return self._admission.not_made(Reason.UNSUPPORTED_INPUT, told)
        occasion = Occasion(situation, leaves, (args, kwargs), watch)
        return self._admission.warm(occasion, self.drop_all)

    # Beside the path: shadow replays.

    def _wants_shadow(self, graph: Graph, situation: Situation) -> bool:
        every = self._verify_every
        if every and (graph.hits + 1) % every == 0:
            return True
        return not graph.trusts(situation.sizes)

    def _shadow(
        self, entry: Entry, graph: Graph, situation: Situation, leaves: list[object], call: Call
    ) -> object:
        device = next((t.device for t in graph.inputs.tensors), torch.device("cpu"))
        result, found = shadow.compare(graph, leaves, situation.sizes, call, self._fn, device)
        if found is None:
            if graph.padding is not None:
                graph.padding.note(situation.sizes)
            self.chronicle.agreed(graph, situation.padded_rows, situation.real_rows)
        else:
            reason = Reason.PADDING_LEAKS if situation.padded_rows else Reason.MISMATCH
            self._quarantine(entry, graph, reason, found)
            self.chronicle.ran_eagerly(reason, found, graph.graph_id)
            self._eagerly.raise_if_asked(reason, found)
        return self._eagerly.owned(result)

    def _quarantine(self, entry: Entry, graph: Graph, reason: Reason, detail: str) -> None:
        """Never use this recording again, nor make another for its signature."""
        if self.store.lose(entry, graph, reason):
            entry.refuse(reason, detail)
            graph.release()
            self._recalls.prune()
            self.chronicle.dropped(graph, reason, detail)

    def close(self) -> None:
        """Release all recordings; later calls run eagerly."""
        self._admission.is_closed = True
        for graph in self.store.close():
            graph.release()
            self.chronicle.dropped(graph, Reason.CLOSED)
        self._recalls.prune()
        self.watches.clear()
