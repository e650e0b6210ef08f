"""The state a run changes besides its result: written tensors and random generators.

Recording runs a step several times. These snapshots make that invisible: after a recording, tensors
and generators are as after one eager run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RandomState:
    """The state of the default generators of the CPU and one device, and of private ones."""

    def __init__(self, device: torch.device, private: Sequence[torch.Generator] = ()) -> None:
        generators = [torch.default_generator, *private]
        if device.type == "cuda":
            generators.insert(1, torch.cuda.default_generators[_index(device)])
        self._states = [(each, each.get_state()) for each in generators]

    def restore(self) -> None:
        """Put every generator back."""
        for generator, state in self._states:
            generator.set_state(state)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


class TensorState:
    """The contents of some tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._kept = [(tensor, tensor.detach().clone()) for tensor in tensors]

    def restore(self) -> None:
        """Copy the contents back, in place."""
        with torch.no_grad():
            for tensor, kept in self._kept:
                tensor.detach().copy_(kept)

    def contents(self) -> dict[int, Tensor]:
        """Return the kept contents by the id of their tensor."""
        return {id(tensor): kept for tensor, kept in self._kept}
