"""The recordings of one runner: found by signature, kept within a budget of bytes."""

from __future__ import annotations

import threading

from ostinato.graphs.cache import Holding, make_room
from ostinato.graphs.entry import Entry
from ostinato.graphs.graph import Graph
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signature import ObjectSpec, Signature

# Signatures remembered; of those without a recording the oldest is forgotten first.
_MOST_ENTRIES = 4096
# Of them, those that hold an object of the caller's, such as a KV cache, and keep it alive.
_MOST_WITH_OBJECTS = 32


class Store:
    """Entries by signature, under one lock; looking one up takes none.

    Args:
        budget_bytes: What all recordings together may keep.
        admit_after: The call of a signature at which it is recorded.

    Attributes:
        epoch: How often all recordings had to go; one begun in an earlier epoch comes too late.
        lost_for: Why they had to go the last time.
    """

    def __init__(self, budget_bytes: int, admit_after: int) -> None:
        self.budget_bytes = budget_bytes
        self._admit_after = admit_after
        self._entries: dict[Signature, Entry] = {}
        self._clock = 0
        self._made: dict[str, int] = {}
        self._with_objects: dict[Signature, Entry] = {}
        self._lock = threading.RLock()
        self.epoch = 0
        self.lost_for = Reason.INVALIDATED
        self._is_closed = False

    def find(self, signature: Signature) -> Entry | None:
        """Return what is remembered of a signature."""
        return self._entries.get(signature)

    def find_or_add(self, signature: Signature) -> Entry:
        """Return the entry of a signature, a new one if it was never seen."""
        with self._lock:
            entry = self._entries.get(signature)
            if entry is None:
                if len(self._entries) >= _MOST_ENTRIES:
                    self._forget_one(self._entries)
                entry = self._entries[signature] = Entry(signature, self._admit_after)
                if any(isinstance(leaf, ObjectSpec) for leaf in signature.leaves):
                    if len(self._with_objects) >= _MOST_WITH_OBJECTS:
                        self._forget_one(self._with_objects)
                    self._with_objects[signature] = entry
            return entry

    def _forget_one(self, among: dict[Signature, Entry]) -> None:
        oldest = next((s for s, e in among.items() if e.graph is None), None)
        if oldest is not None:
            del self._entries[oldest]
            self._with_objects.pop(oldest, None)

    def count_call(self, entry: Entry) -> None:
        """Count a call that is not a replay."""
        with self._lock:
            entry.calls += 1

    def entries(self) -> list[Entry]:
        """Return all entries."""
        with self._lock:
            return list(self._entries.values())

    def graphs(self) -> list[Graph]:
        """Return the present recordings."""
        return [entry.graph for entry in self.entries() if entry.graph is not None]

    def used_bytes(self) -> int:
        """Return the memory that all recordings keep."""
        return sum(graph.bytes for graph in self.graphs())

    def keep(self, entry: Entry, graph: Graph, epoch: int) -> list[Graph] | Reason:
        """Take a recording in; return those that had to go for it, or why it cannot stay.

        The caller releases what is returned, or the newcomer.

        Args:
            epoch: The store's when the recording was begun.
        """
        with self._lock:
            if self._is_closed:
                return Reason.CLOSED
            if epoch != self.epoch:
                return self.lost_for
            if self._entries.setdefault(entry.signature, entry) is not entry:
                return Reason.BEING_RECORDED  # forgotten meanwhile, and seen again
            held = [self._holding(e, e.graph) for e in self._entries.values() if e.graph]
            leaving = make_room(held, self._holding(entry, graph), self.budget_bytes)
            if leaving is None:
                return Reason.OVER_BUDGET
            gone = [self._take_out(graph_id) for graph_id in leaving]
            entry.graph = graph
            entry.nodes = graph.recording.nodes
            self._clock += 1
            self._made[graph.graph_id] = self._clock
            return gone

    def _holding(self, entry: Entry, graph: Graph) -> Holding:
        return Holding(
            graph.graph_id,
            graph.bytes,
            entry.all_calls,
            graph.saved_us,
            self._made.get(graph.graph_id, self._clock + 1),
        )

    def has_room(self, entry: Entry) -> bool:
        """Whether a recording of this signature would fit, as far as its size is known."""
        if entry.needs is None:
            return True
        newcomer = Holding("", entry.needs[0], entry.all_calls, entry.needs[1], self._clock + 1)
        with self._lock:
            held = [self._holding(e, e.graph) for e in self._entries.values() if e.graph]
            return make_room(held, newcomer, self.budget_bytes) is not None

    def _take_out(self, graph_id: str) -> Graph:
        entry = next(e for e in self._entries.values() if e.graph and e.graph.graph_id == graph_id)
        graph = entry.lose(Reason.OVER_BUDGET)
        assert graph is not None
        self._made.pop(graph_id, None)
        return graph

    def lose(self, entry: Entry, graph: Graph, reason: Reason) -> bool:
        """Take one recording out; False if somebody else did already."""
        with self._lock:
            if entry.graph is not graph:
                return False
            entry.lose(reason)
            self._made.pop(graph.graph_id, None)
            return True

    def lose_all(self, reason: Reason) -> list[Graph]:
        """Take every recording out, and let refused signatures try again."""
        with self._lock:
            self.epoch += 1
            self.lost_for = reason
            gone = []
            for entry in self._entries.values():
                entry.reconsider()
                graph = entry.lose(reason)
                if graph is not None:
                    gone.append(graph)
            self._made.clear()
            return gone

    def close(self) -> list[Graph]:
        """Forget everything for good; return the recordings to release."""
        with self._lock:
            self._is_closed = True
            gone = self.lose_all(Reason.CLOSED)
            self._entries.clear()
            self._with_objects.clear()
            return gone
