"""Which session serves a request: one per batch size, grown when a request needs more columns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from ostinato.hf.delegation import Delegated, DelegateError
from ostinato.hf.fusing import Fusion
from ostinato.hf.lengths import cache_length, prompt_bucket
from ostinato.hf.report import RunnerTotals
from ostinato.hf.session import Session

MOST_SESSIONS = 4
"""Batch sizes whose state and recordings are kept; the one unused longest goes first."""


class Sessions:
    """The sessions of one model, by batch size.

    Args:
        limit: Columns of every cache, fixed; None lets each grow by doubling.
        buckets: Prompt lengths to record; None for the usual ladder.
    """

    def __init__(self, limit: int | None, buckets: Sequence[int] | None) -> None:
        self._limit, self._buckets = limit, buckets
        self._by_rows: OrderedDict[int, Session] = OrderedDict()
        self._closed = RunnerTotals()

    def __getitem__(self, rows: int) -> Session:
        return self._by_rows[rows]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_rows)

    def __len__(self) -> int:
        return len(self._by_rows)

    def find_or_make(
        self,
        rows: int,
        prompt: int,
        columns: int,
        make: Callable[[int], Session],
        require_room: Callable[[int, int], None],
    ) -> tuple[Session, int | None]:
        """Return a session with room for `columns`, and the prompt's bucket.

        Args:
            rows: Rows of the batch.
            prompt: Columns of the prompt.
            columns: Columns that the whole request will fill.
            make: Makes a session of a given length.
            require_room: Raises if a cache of a length does not fit, even in place of some bytes.

        Raises:
            DelegateError: The fixed length is too short, or memory is.
        """
        bucket = prompt_bucket(prompt, self._buckets)
        needed = max(columns, bucket or 0)
        if self._limit is not None and needed > self._limit >= columns:
            bucket, needed = None, columns  # the bucket's padding would not fit, the prompt does
        length = cache_length(needed, self._limit)
        if length is None:
            raise DelegateError(
                Delegated.LONGER_THAN_CACHE,
                f"{columns} columns are needed, max_cache_len is {self._limit}",
            )
        session = self._by_rows.get(rows)
        if session is None or session.length < length:
            # Before a session that serves shorter requests is given up.
            require_room(length, 0 if session is None else session.state.cache.bytes)
        if session is not None and session.length < length:
            self._retire(self._by_rows.pop(rows))
            session = None
        if session is None:
            while len(self._by_rows) >= MOST_SESSIONS:
                self._retire(self._by_rows.popitem(last=False)[1])
            session = self._by_rows[rows] = make(length)
        self._by_rows.move_to_end(rows)
        return session, bucket

    def close(self) -> None:
        """Give back every session."""
        while self._by_rows:
            self._retire(self._by_rows.popitem()[1])

    def _retire(self, session: Session) -> None:
        session.close()
        self._closed.add_totals(session.totals())

    def totals(self) -> RunnerTotals:
        """Return the counts of all runners there ever were."""
        totals = self._closed.copy()
        for session in self._by_rows.values():
            totals.add_totals(session.totals())
        return totals

    @property
    def fusion(self) -> Fusion | None:
        """What is fused in the step that was used last."""
        return next(reversed(self._by_rows.values())).fusion if self._by_rows else None

    @property
    def cache_bytes(self) -> int:
        """Memory of the key-value caches alive now."""
        return sum(session.state.cache.bytes for session in self._by_rows.values())
