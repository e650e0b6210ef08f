"""The state a run changes besides its result: written tensors and random generators.

Recording runs a step several times. These snapshots make that invisible: after a recording, tensors
and generators are as after one eager run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ostinato.graphs.seeds import default_generators, set_state, state_of


class RandomState:
    """The state of the default generators of the CPU and one device, and of private ones."""

    def __init__(self, device: torch.device, private: Sequence[torch.Generator] = ()) -> None:
        self._states = [(each, state_of(each)) for each in (*default_generators(device), *private)]

    def restore(self) -> None:
        """Put every generator back."""
        for generator, state in self._states:
            set_state(generator, state)


class TensorState:
    """The contents of some tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        # The alias keeps its shape when a run transposes or resizes the tensor itself in place.
        self._kept = [(tensor, t := tensor.detach(), t.clone()) for tensor in tensors]

    def restore(self) -> None:
        """Copy the contents back, in place; a tensor whose shape was changed gets it back."""
        with torch.no_grad():
            for tensor, alias, kept in self._kept:
                alias.copy_(kept)
                if tensor.shape != alias.shape or tensor.stride() != alias.stride():
                    tensor.set_(alias)  # type: ignore[call-overload]

    def contents(self) -> dict[int, Tensor]:
        """Return the kept contents by the id of their tensor."""
        return {id(tensor): kept for tensor, _, kept in self._kept}
