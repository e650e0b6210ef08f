"""What a function's cache holds, to take out again what an extra run put into it.

A run whose effects were undone, but whose answer stays in a cache, is not run again by the next
call: what it does would be lost.
"""

from __future__ import annotations

import functools
import gc
from typing import Any


class CacheState:
    """The entries of a `functools.lru_cache`.

    Args:
        cached: What the decorator made.
    """

    def __init__(self, cached: functools._lru_cache_wrapper[Any]) -> None:
        self._cached = cached
        self._misses = cached.cache_info().misses
        entries = _entries_of(cached)
        self._before = None if entries is None else dict.copy(entries)

    def put_back(self) -> None:
        """Take out what came in since; what was pushed out by it stays out."""
        if self._cached.cache_info().misses == self._misses:
            return
        entries = _entries_of(self._cached)
        if entries is None or self._before is None:
            self._cached.cache_clear()  # then the entries of before are worked out once more
            return
        kept = set(map(id, self._before))
        for key in dict.copy(entries):
            if id(key) not in kept:
                # A bounded cache has the entry in a chain as well, and expects that it is gone
                # from here: a thread may take it out while the function runs.
                entries.pop(key, None)


def _entries_of(cached: functools._lru_cache_wrapper[Any]) -> dict[Any, Any] | None:
    """The dict behind a cache, which only the garbage collector shows; None if it is not there."""
    own = vars(cached)
    # Answers that are dicts come before it.
    held = [each for each in gc.get_referents(cached) if type(each) is dict and each is not own]
    if not held or len(held[-1]) != cached.cache_info().currsize:
        return None
    return held[-1]
