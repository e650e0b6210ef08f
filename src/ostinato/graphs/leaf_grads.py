"""The gradients that weights hold, to see whether a run gave them others and to put those back.

`backward()` adds to a gradient in place, as to any tensor; but where there is none, it sets one,
and the next call would add to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from torch import Tensor


class GradState:
    """Which tensor is the gradient of each of some tensors.

    Args:
        tensors: Those that require no gradient, and results of computations, are left out.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._held: list[tuple[Tensor, Tensor | None]] = []
        for tensor in {id(each): each for each in tensors}.values():
            with suppress(Exception):  # a subclass of the user's may refuse to say it
                if tensor.is_leaf and tensor.requires_grad:
                    self._held.append((tensor, tensor.grad))

    def changed(self) -> Iterator[Tensor]:
        """Yield the tensors that have another gradient now, or none any more."""
        for tensor, grad in self._held:
            if tensor.grad is not grad:
                yield tensor

    def put_back(self) -> None:
        """Give each the gradient that it had."""
        grads = {id(tensor): grad for tensor, grad in self._held}
        for tensor in list(self.changed()):
            tensor.grad = grads[id(tensor)]
