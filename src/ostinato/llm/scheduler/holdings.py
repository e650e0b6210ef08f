"""Pages as the scheduler sees them: granted while there are any, idle cached ones included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import Found, PrefixIndex
from ostinato.llm.scheduler.progress import Progress

_NOTHING = Found((), 0)


class Holdings:
    """The pool and, where prefixes are cached, the index over it."""

    def __init__(self, pool: PagePool, prefix: PrefixIndex | None, page_tokens: int) -> None:
        self._pool = pool
        self._prefix = prefix
        self._page_tokens = page_tokens

    @property
    def capacity(self) -> int:
        """How many pages there are."""
        return self._pool.capacity

    @property
    def idle(self) -> int:
        """How many pages are kept only because their content may be of use again."""
        return self._prefix.idle if self._prefix is not None else 0

    @property
    def available(self) -> int:
        """How many pages could be granted now."""
        return self._pool.free + self.idle

    def find(self, progress: Progress) -> Found:
        """Return the known pages at the beginning of a request's tokens.

        Never the page of the newest token: that one is still to be written.
        """
        if self._prefix is None:
            return _NOTHING
        pages = (len(progress.tokens) - 1) // self._page_tokens
        return self._prefix.find(progress.keys.first(pages, progress.tokens))

    def take(self, found: Found) -> list[int]:
        """Hold the pages found, and return them."""
        return self._prefix.take(found) if self._prefix is not None else []

    def grant(self, count: int) -> list[int] | None:
        """Return `count` pages, evicting idle ones as needed; None, and no change, if too few."""
        if count > self.available:
            return None
        short = count - self._pool.free
        if self._prefix is not None and short > 0:
            self._prefix.evict(short)
        return self._pool.grant(count)

    def release(self, pages: Sequence[int]) -> None:
        """Let go of pages, given in the order of their tokens."""
        if self._prefix is not None:
            self._prefix.release(pages)
            return
        self._pool.release_all(reversed(pages))

    def publish(self, progresses: Iterable[Progress]) -> None:
        """Make the full written pages of those that have rows known to the index."""
        if self._prefix is None:
            return
        for progress in progresses:
            full = progress.written // self._page_tokens
            if full <= progress.indexed or progress.row is None or not progress.is_shareable:
                continue
            keys = progress.keys.first(full, progress.tokens)
            for at in range(progress.indexed, full):
                self._prefix.insert(keys[at], progress.pages[at])
            progress.indexed = full

    def disown(self, progress: Progress) -> None:
        """Let nobody find the pages of a request that ended in an error, whoever wrote them."""
        if self._prefix is not None:
            self._prefix.disown(progress.pages)

    def forget(self) -> None:
        """Forget all that is cached."""
        if self._prefix is not None:
            self._prefix.clear()

    def check_integrity(self, progresses: Sequence[Progress]) -> None:
        """Check that the pool's count of each page is that of the requests and the index.

        Raises:
            InternalError: OST5190, with the first page that is wrong.
        """
        holders: dict[int, int] = {}
        if self._prefix is not None:
            self._prefix.check_integrity()
            holders = self._prefix.holders()
        for progress in progresses:
            for page in progress.pages:
                holders[page] = holders.get(page, 0) + 1
        self._pool.check_integrity(holders)
