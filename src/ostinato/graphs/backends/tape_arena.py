"""One block of memory for everything that a replay computes on the way.

Each region gets a storage of exactly its size on its part of the block. A kernel that tried to grow
the tensor it was given would raise instead of writing over its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

ALIGNMENT = 64  # as torch's own CPU allocator; kernels may take another path below it


class Arena:
    """The block, and where each region starts in it."""

    __slots__ = ("_block", "_starts")

    def __init__(self, nbytes: int, starts: Mapping[int, int]) -> None:
        self._block = memoryview(torch.empty(nbytes, dtype=torch.uint8, device="cpu").numpy().data)
        self._starts = starts

    def storage(self, region: int, nbytes: int) -> torch.UntypedStorage:
        """Return the memory of a region, as a storage that can neither grow nor move."""
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8, device="cpu").untyped_storage()
        start = self._starts[region]
        part = self._block[start : start + nbytes]
        return torch.frombuffer(part, dtype=torch.uint8).untyped_storage()
