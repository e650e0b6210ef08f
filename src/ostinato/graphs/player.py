"""The path of a call: sign, look up, replay; or run eagerly and say why.

`Player.call` is the path. Everything else (admission, recording, weights, shadow replays) stands
beside it. A call that cannot be replayed runs eagerly with a `Reason`: an outcome, never silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from ostinato.graphs import shadow
from ostinato.graphs.chronicle import Chronicle
from ostinato.graphs.decision import Decision
from ostinato.graphs.drawing import drawing_run
from ostinato.graphs.entry import Entry, unfit_at_sight
from ostinato.graphs.fitting import Call, Fitting, Occasion, Situation
from ostinato.graphs.foreign import ALIASES
from ostinato.graphs.graph import Graph
from ostinato.graphs.inline import runs_inline
from ostinato.graphs.options import Options
from ostinato.graphs.outputs import lease_all
from ostinato.graphs.placing import place
from ostinato.graphs.raising import error_for
from ostinato.graphs.reasons import Reason
from ostinato.graphs.recall import Recall, Recalls
from ostinato.graphs.recorder import Recorder, first_line
from ostinato.graphs.store import Store
from ostinato.graphs.watch import Change, Watch, recalls
from ostinato.graphs.watches import Watches

_MISS = object()

_OF_PLACING = frozenset({Reason.SEVERAL_DEVICES, Reason.UNSUPPORTED_DEVICE})


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
        self._is_closed = False
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
                if answer is not _MISS:
                    return answer
                break
        if runs_inline():
            return self._fn(*args, **kwargs)
        leaves, structure = self._open(args, kwargs)
        watch = self._watch_over(leaves, self)
        situation = self._sign(leaves, structure, watch.training_key())
        if situation.signature is not None:
            entry = self._find(situation.signature)
            if entry is not None and entry.graph is not None:
                occasion = Occasion(situation, leaves, (args, kwargs), watch)
                answer = self._replay(entry, entry.graph, occasion)
                if answer is not _MISS:
                    return answer
        return self._serve(Occasion(situation, leaves, (args, kwargs), watch))

    def _replay_at_once(
        self, recall: Recall, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Answer a call that is as one before; `_MISS` if the long way has to be gone after all."""
        graph = recall.graph
        if not graph.lock.acquire(False):  # by the time it is free, what was found out may be old
            return _MISS
        try:
            if graph.is_released or recall.entry.graph is not graph or not graph.is_padding_checked:
                return _MISS
            leaves: Sequence[object] = args
            if not recall.is_plain:
                if not recall.may_answer(args, kwargs):
                    return _MISS
                leaves = recall.leaves(args, kwargs)
            situation = recall.situation
            try:
                if recall.straight is not None and not self._is_leased:
                    answer = recall.straight(args[0])
                else:
                    answer = self._run(graph, leaves, situation)
            except Exception as error:  # noqa: BLE001 - the device's, of whatever type
                self.give_up(recall.entry, graph, error)
                return _MISS
            self._note_replay(graph, situation.padded_rows, situation.real_rows)
            return answer
        finally:
            graph.lock.release()

    def _replay(self, entry: Entry, graph: Graph, occasion: Occasion) -> object:
        """Answer from the recording; `_MISS` if it turned out to be unusable."""
        situation, leaves, call, _ = occasion
        if graph.unlike_at_one and 1 in situation.sizes:
            return self._run_eagerly(call, Reason.OUTPUT_SIZE_UNKNOWN, graph.unlike_at_one)
        with graph.lock:
            if graph.is_released:
                return _MISS
            moved = _moved(graph)
            aliases = moved is None and graph.foreign is not None and graph.foreign.meets(leaves)
            if moved is None and not aliases:
                if self._verify_every or not graph.is_padding_checked:  # noqa: SIM102 - asked first
                    if self._wants_shadow(graph, situation):
                        return self._shadow(entry, graph, situation, leaves, call)
                try:
                    answer = self._run(graph, leaves, situation)
                except Exception as error:  # noqa: BLE001 - the device's, of whatever type
                    self.give_up(entry, graph, error)
                    return _MISS
                self._note_replay(graph, situation.padded_rows, situation.real_rows)
                if graph.is_padding_checked and not self._verify_every:
                    self._remember(entry, graph, occasion)
                return answer
        if moved is None:
            return self._run_eagerly(call, Reason.UNSUPPORTED_INPUT, ALIASES)
        self.drop_all(moved)
        return _MISS

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
        watch = self._watch_over(leaves, self)
        situation = self._sign(leaves, structure, watch.training_key())
        entry = None if situation.signature is None else self._find(situation.signature)
        graph = None if entry is None else entry.graph
        if entry is None or graph is None or self._verify_every or not graph.is_padding_checked:
            return None
        if _moved(graph) is not None or (graph.foreign and graph.foreign.meets(leaves)):
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

    # Beside the path: calls without a recording.

    def _serve(self, occasion: Occasion) -> object:
        """Run eagerly with a reason, or record."""
        situation = occasion.situation
        if self._is_closed:
            return self._run_eagerly(occasion.call, Reason.CLOSED)
        if self._options.backend == "eager":
            return self._run_eagerly(occasion.call, Reason.EAGER_BACKEND)
        if situation.signature is None:
            assert situation.unfit is not None
            return self._run_eagerly(occasion.call, *situation.unfit)
        entry = self.store.find_or_add(situation.signature)
        self._judge_at_sight(entry, occasion.watch)
        if entry.refusal is not None:
            return self._run_eagerly(occasion.call, entry.refusal, entry.detail)
        self.store.count_call(entry)
        if entry.calls < entry.admit_at:
            return self._run_eagerly(occasion.call, entry.waiting_for, entry.detail)
        if not entry.building.acquire(blocking=False):
            return self._run_eagerly(occasion.call, Reason.BEING_RECORDED)
        try:
            return self._admit(entry, occasion)
        finally:
            entry.building.release()

    def _admit(self, entry: Entry, occasion: Occasion) -> object:
        """Record, unless another thread tried a moment ago, or there is no room."""
        if entry.graph is not None:
            answer = self._replay(entry, entry.graph, occasion)
            if answer is not _MISS:
                return answer
        if entry.refusal is not None:
            return self._run_eagerly(occasion.call, entry.refusal, entry.detail)
        if entry.calls < entry.admit_at or not self.store.has_room(entry):
            entry.postpone(entry.waiting_for, entry.detail)
            return self._run_eagerly(occasion.call, entry.waiting_for, entry.detail)
        return self._record(entry, occasion)

    def _judge_at_sight(self, entry: Entry, watch: Watch) -> None:
        """Refuse what the signature, or where the weights lie, shows to be impossible."""
        if entry.calls == 0 and entry.refusal is None:
            unfit = unfit_at_sight(entry.signature)
            if unfit is not None:
                entry.refuse(*unfit)
                return
        elif entry.refusal not in _OF_PLACING:
            return
        placed = place(entry.signature, watch.tensors, self._options.backend)
        if isinstance(placed[0], Reason):
            entry.refusal, entry.detail = placed
        elif unfit_at_sight(entry.signature) is None:
            entry.refusal = None  # `.to()` moved the weights to the arguments

    def _run_eagerly(self, call: Call, reason: Reason, detail: str = "") -> object:
        self.chronicle.ran_eagerly(reason, detail)
        self._raise_if_asked(reason, detail)
        return self._owned(self._plain_call(call))

    def _plain_call(self, call: Call) -> object:
        args, kwargs = call
        with drawing_run() if torch.cuda.is_initialized() else nullcontext():
            return self._fn(*args, **kwargs)

    def _owned(self, result: object) -> object:
        return lease_all(result) if self._is_leased else result

    def _raise_if_asked(self, reason: Reason, detail: str) -> None:
        if self._options.on_unfit == "raise":
            error = error_for(self.chronicle.name, reason, detail)
            if error is not None:
                raise error

    def _record(self, entry: Entry, occasion: Occasion) -> object:
        """Answer the call eagerly and make a recording beside it."""
        # With on_unfit="raise" nothing may have happened when it raises: record first, on copies.
        serve = self._options.on_unfit == "eager"
        made = self.recorder.record(entry, occasion, is_call=True, serve=serve)
        self._recalls.prune()  # others may have had to go for it
        if made.reason is None:
            assert made.graph is not None
            self.chronicle.made_recording(made.graph, entry.recaptures_for, served=True)
            entry.recaptures_for = None
        else:
            self._tell_unfit(made.reason, made.detail)
            if not made.is_first:
                self._raise_if_asked(made.reason, made.detail)
        is_answered = serve and not made.is_unanswered
        return self._owned(made.result if is_answered else self._plain_call(occasion.call))

    def _tell_unfit(self, reason: Reason, detail: str) -> None:
        self.chronicle.ran_eagerly(reason, detail)
        if reason is Reason.PYTHON_SIDE_EFFECT:
            self.chronicle.warn(
                reason,
                f"a Python side effect would not be replayed, so it runs eagerly: {detail}",
            )

    # Beside the path: recording ahead of a call.

    def warm(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Decision:
        """Record one signature without answering or changing anything."""
        leaves, structure = self._open(args, kwargs)
        watch = self.watches.over(leaves, self)
        situation = self._sign(leaves, structure, watch.training_key())
        occasion = Occasion(situation, leaves, (args, kwargs), watch)
        if self._is_closed:
            return self._not_made(Reason.CLOSED)
        if situation.signature is None:
            assert situation.unfit is not None
            return self._not_made(*situation.unfit)
        if self._options.backend == "eager":
            return self._not_made(Reason.EAGER_BACKEND)
        entry = self.store.find_or_add(situation.signature)
        self._judge_at_sight(entry, watch)
        with entry.building:
            if entry.refusal is not None:
                return self._not_made(entry.refusal, entry.detail)
            if entry.graph is not None:
                moved = _moved(entry.graph)
                if moved is None:
                    return entry.graph.decision
                self.drop_all(moved)
            made = self.recorder.record(entry, occasion, is_call=False, serve=False)
            self._recalls.prune()
            if made.reason is not None:
                return self._not_made(made.reason, made.detail)
            assert made.graph is not None
            self.chronicle.made_recording(made.graph, entry.recaptures_for, served=False)
            entry.recaptures_for = None
        decision = self.chronicle.last
        assert decision is not None
        return decision

    def _not_made(self, reason: Reason, detail: str = "") -> Decision:
        self.chronicle.not_made(reason, detail)
        self._raise_if_asked(reason, detail)
        return Decision.eager(reason, detail)

    # Beside the path: shadow replays.

    def _wants_shadow(self, graph: Graph, situation: Situation) -> bool:
        every = self._verify_every
        if every and (graph.hits + 1) % every == 0:
            return True
        return not graph.is_padding_checked and situation.padded_rows > 0

    def _shadow(
        self, entry: Entry, graph: Graph, situation: Situation, leaves: list[object], call: Call
    ) -> object:
        device = next((t.device for t in graph.inputs.tensors), torch.device("cpu"))
        result, found = shadow.compare(graph, leaves, situation.sizes, call, self._fn, device)
        if found is None:
            graph.is_padding_checked = graph.is_padding_checked or situation.padded_rows > 0
            self.chronicle.replayed(graph, situation.padded_rows, situation.real_rows)
        else:
            reason = Reason.PADDING_LEAKS if situation.padded_rows else Reason.MISMATCH
            self._quarantine(entry, graph, reason, found)
            self.chronicle.ran_eagerly(reason, found, graph.graph_id)
            self._raise_if_asked(reason, found)
        return self._owned(result)

    def _quarantine(self, entry: Entry, graph: Graph, reason: Reason, detail: str) -> None:
        """Never use this recording again, nor make another for its signature."""
        if self.store.lose(entry, graph, reason):
            entry.refuse(reason, detail)
            graph.release()
            self._recalls.prune()
            self.chronicle.dropped(graph, reason, detail)

    def close(self) -> None:
        """Release all recordings; later calls run eagerly."""
        self._is_closed = True
        for graph in self.store.close():
            graph.release()
            self.chronicle.dropped(graph, Reason.CLOSED)
        self._recalls.prune()
        self.watches.clear()


def _moved(graph: Graph) -> Change | None:
    if not graph.addresses.hold():
        return Change(Reason.WEIGHTS_MOVED, "a tensor that the recording reads was exchanged")
    if graph.needs_no_grad and not graph.addresses.grads_hold():
        return Change(
            Reason.WEIGHTS_MOVED, "a tensor that the recording reads requires gradients now"
        )
    return None
