"""Which static length serves a prompt or a cache: a short ladder of sizes.

A recording holds one shape, so lengths are rounded up. Prompts climb a ladder with four rungs per
doubling (at most a quarter of the prefill is padding); caches double (growing one costs a
recording, and a masked column costs little). Arithmetic only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ostinato.errors import UsageError

SHORTEST_PROMPT = 16
SHORTEST_CACHE = 64


def prompt_bucket(tokens: int, sizes: Sequence[int] | None = None) -> int | None:
    """Return the prefill length for a prompt of `tokens`, or None if no given size holds it."""
    if sizes is not None:
        index = bisect_left(sizes, tokens)
        return sizes[index] if index < len(sizes) else None
    rung = SHORTEST_PROMPT
    while rung < tokens:
        step = (1 << (rung.bit_length() - 1)) // 4
        rung += step
    return rung


def cache_length(columns: int, limit: int | None = None) -> int | None:
    """Return the cache length that holds `columns`, or None if the limit does not.

    With a limit the cache has that length from the start and never grows. Lengths are multiples of
    16: attention kernels copy a mask whose rows are not aligned, at every step.
    """
    if limit is not None:
        return -(-limit // 16) * 16 if columns <= limit else None
    return max(SHORTEST_CACHE, 1 << (columns - 1).bit_length())


def check_buckets(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Validate prefill sizes given by a user.

    Raises:
        UsageError: OST3002, they are not ascending integers of at least 2.
    """
    if sizes is None:
        return None
    given = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in given)
    ascends = whole and all(a < b for a, b in pairwise(given))
    if not isinstance(sizes, Iterable) or not given or not ascends or given[0] < 2:
        raise UsageError(
            f"prefill buckets must be strictly ascending integers of at least 2, got {sizes!r}",
            code="OST3002",
            remedy="pass lengths such as (16, 32, 64, 128), or leave prefill_buckets out",
        )
    return given
