"""Which padded sizes of a recording were compared with an eager run, and for which that is enough.

Padding may show at one size and not at the next. At size 1 a mean over repeated rows is the mean;
at size 2 of 4 the middle row is the last one; two more rows do not change whether a count is even.
So one comparison says nothing yet of other sizes, and nothing at all of a call that pads other
inputs. Each further comparison costs the call that pays for it a few eager runs.

Arithmetic only. `proof.py` and `shadow.py` compare, `player.py` asks here before it replays.
"""

from __future__ import annotations

from collections.abc import Sequence

_ENOUGH = 2
"""So many sizes of a padded input, between 1 and the whole bucket, speak for the others."""
_MOST_TRUSTED = 4096


class ComparedSizes:
    """What is known of the padding of one recording.

    Args:
        buckets: Size of each bucketed axis, as recorded.
        can_tell: False where runs cannot be compared, as they draw: the first speaks for all.

    Attributes:
        trusted: Real sizes, one for each axis, that need no comparison; as far as they were asked
            about.
    """

    __slots__ = ("_buckets", "_can_tell", "_compared", "trusted")

    def __init__(self, buckets: Sequence[int], *, can_tell: bool = True) -> None:
        self._buckets = tuple(buckets)
        self._can_tell = can_tell
        self._compared: dict[tuple[str, ...], tuple[frozenset[int], ...]] = {}
        self.trusted: set[tuple[int, ...]] = set()

    def anew(self) -> ComparedSizes:
        """Return the same before any comparison: the weights are others now."""
        return ComparedSizes(self._buckets, can_tell=self._can_tell)

    def trusts(self, sizes: tuple[int, ...]) -> bool:
        """Whether a call of these real sizes may be answered without a comparison."""
        if sizes in self.trusted:
            return True
        if not self._is_known(sizes):
            return False
        if len(self.trusted) < _MOST_TRUSTED:
            self.trusted.add(sizes)
        return True

    def note(self, sizes: tuple[int, ...]) -> None:
        """A call of these real sizes was compared, and both runs agreed."""
        if sizes == self._buckets:
            return  # nothing was padded
        way = self._way(sizes)
        known = self._compared.get(way, (frozenset(),) * len(sizes))
        # New ones: another thread may be looking through the old.
        self._compared[way] = tuple(
            compared | {size} for compared, size in zip(known, sizes, strict=True)
        )

    def _is_known(self, sizes: tuple[int, ...]) -> bool:
        if sizes == self._buckets or (self._compared and not self._can_tell):
            return True
        known = self._compared.get(self._way(sizes))
        return known is not None and all(map(_speak_for, known, sizes))

    def _way(self, sizes: tuple[int, ...]) -> tuple[str, ...]:
        """Say of each axis whether it is padded, and whether from a single row."""
        return tuple(
            "full" if size == bucket else "one" if size == 1 else "padded"
            for size, bucket in zip(sizes, self._buckets, strict=True)
        )


def _speak_for(compared: frozenset[int], size: int) -> bool:
    """Whether sizes that were compared say enough of another one of the kind."""
    has_like = any(each % 2 == size % 2 for each in compared)
    return size in compared or (len(compared) >= _ENOUGH and has_like)
