"""Ray Serve's way to ask which replica is next; `placing.Memory` decides, this reads and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ostinato.serve.ray.door import RequestRouter
from ostinato.serve.ray.placing import Memory

_MARKS = 1
"""Which argument of `EngineReplica.generate` they are."""


class PrefixRouter(RequestRouter):  # type: ignore[misc]  # Ray's, without types here
    """Sends prompts that begin alike to the same replica, as long as its load allows."""

    def initialize_state(self, slack: int = 8, most: int = 100_000, **kwargs: Any) -> None:
        """Ray calls it once, with the deployment's `request_router_kwargs`."""
        self._memory: Memory[Any] = Memory(most, slack)
        # Where requests are on their way to: many are placed before the first arrives.
        self._on_their_way: dict[int, tuple[Any, Any]] = {}

    async def choose_replicas(
        self, candidate_replicas: list[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """Return the candidates, each a rank of its own, the preferred one first."""
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        ranked = self._memory.rank(_marks(pending_request), self._loads(by_id))
        if ranked and pending_request is not None:
            self._on_their_way[id(pending_request)] = (pending_request, ranked[0])
            self._memory.sent(_marks(pending_request), ranked[0])
        return [[by_id[one]] for one in ranked]

    def _loads(self, replicas: Iterable[Any]) -> dict[Any, int]:
        gone = [key for key, (one, _) in self._on_their_way.items() if one.future.done()]
        for key in gone:  # arrived, or given up
            del self._on_their_way[key]
        coming = Counter(replica for _, replica in self._on_their_way.values())
        known = self.replica_queue_len_cache
        return {one: (known.get(one) or 0) + coming[one] for one in replicas}

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        """Note where a request went, if it was not where it was to go."""
        _, meant = self._on_their_way.pop(id(pending_request), (None, None))
        if replica_id != meant:
            self._memory.sent(_marks(pending_request), replica_id)

    def update_replicas(self, replicas: list[Any]) -> None:
        """Take which replicas there are now."""
        super().update_replicas(replicas)
        self._memory.keep_only({replica.replica_id for replica in replicas})


def _marks(pending: Any) -> list[bytes]:
    if pending is None or len(pending.args) <= _MARKS:
        return []
    marks: list[bytes] = pending.args[_MARKS]
    return marks
