"""What a run overwrote, kept so that the run can be undone.

Before a call writes a tensor that the run did not create, the content of exactly that tensor is
copied aside. Undoing goes through the copies in reverse, which is right for overlapping views too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.graphs.aten_calls import storage_id
from ostinato.graphs.seeds import set_state, state_of

Region = tuple[int, int, torch.dtype, torch.Size, tuple[int, ...]]


class Journal:
    """An undo log of writes into tensors that outlive the run."""

    __slots__ = ("_drawn", "_entries", "_exchanged", "_seen")

    def __init__(self) -> None:
        self._entries: list[tuple[Tensor, Tensor]] = []
        self._seen: set[Region] = set()
        self._exchanged: list[tuple[Tensor, Tensor]] = []
        self._drawn: list[tuple[torch.Generator, Tensor]] = []

    def before_write(self, tensor: Tensor) -> None:
        """Keep the content of `tensor`, unless this very region is kept already."""
        region = (
            storage_id(tensor),
            int(tensor.storage_offset()),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
        )
        if region not in self._seen:
            self._seen.add(region)
            alias = tensor.detach()
            self._entries.append((alias, alias.clone()))

    def before_exchange(self, tensor: Tensor) -> None:
        """Keep what `tensor` looks at, before it is given other memory or another window."""
        self._exchanged.append((tensor, tensor.detach()))

    def before_draw(self, generator: torch.Generator) -> None:
        """Keep the state of a private generator that is drawn from for the first time."""
        self._drawn.append((generator, state_of(generator)))

    def undo(self) -> None:
        """Put all of it back; may be called again after another run of the same step."""
        for generator, state in self._drawn:
            set_state(generator, state)
        # In inference mode both inference tensors and leaves that require grad may be written.
        with torch.inference_mode():
            for tensor, as_it_was in reversed(self._exchanged):
                tensor.data = as_it_was
            for tensor, content in reversed(self._entries):
                tensor.copy_(content)
