"""Does a call's tensor share memory with a tensor that the recorded run writes, or reads?

A recording works on copies of a call's tensors. In eager, a tensor that is an argument and the
function's own state at once changes under the function's hands; on a copy it would not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ostinato.graphs.signing import span_bytes

ALIASES = "an argument shares memory with a tensor that the function holds, and one is written"


class _Memory:
    """Address ranges, merged and in order."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        found = sorted(
            (t.data_ptr(), t.data_ptr() + span_bytes(t))
            for t in tensors
            if t.layout is torch.strided and t.numel()
        )
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in found:
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)

    def meets(self, start: int, end: int) -> bool:
        """Whether any byte from `start` until `end` is in it."""
        at = bisect_left(self.starts, end)  # the ranges before this one start before `end`
        return at > 0 and self.ends[at - 1] > start


class Foreign:
    """What the tensors of a call may not share memory with.

    Args:
        externals: The tensors from outside that a run uses.
        written: Those that it writes.
        written_leaves: Indices of the leaves of a call that it writes.
    """

    __slots__ = ("_all", "_written", "_written_leaves")

    def __init__(
        self,
        externals: Iterable[Tensor],
        written: Iterable[Tensor],
        written_leaves: frozenset[int],
    ) -> None:
        self._written = _Memory(written)
        self._all = _Memory(externals)
        self._written_leaves = written_leaves

    def meets(self, leaves: Sequence[object]) -> bool:
        """Whether a call's tensor overlaps one that a run writes, or a written one overlaps any."""
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided:
                continue
            memory = self._all if index in self._written_leaves else self._written
            if memory.starts:
                start = leaf.data_ptr()
                if memory.meets(start, start + span_bytes(leaf)):
                    return True
        return False
