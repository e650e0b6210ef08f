"""What a graph captured by hand reads from outside, and whether that memory is still anybody's.

While a capture runs, the tensors that it takes and did not make itself are noted by their storage.
A replay that comes after one of them was freed reads memory that belongs to nobody, or to another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MOST = 4096


class InputsOfCapture(TorchDispatchMode):
    """Notes storages that come into a capture from outside, while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._outside: dict[int, StorageWeakRef] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                storage = value.untyped_storage()
                known = storage._cdata
                if known not in self._made and len(self._outside) < _MOST:
                    self._outside.setdefault(known, StorageWeakRef(storage))
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                known = value.untyped_storage()._cdata
                if known not in self._outside:
                    self._made.add(known)
        return result

    def freed(self) -> int:
        """Return how many of them nobody holds any more."""
        return sum(1 for storage in self._outside.values() if storage.expired())
