"""What every decoder can do, whatever its architecture.

Decoding one token per row and prefilling packed prompts are the same computation over N tokens;
they differ in what `attend` does. So an architecture writes one `run`, and gets both.

Shapes: N tokens (B rows or T packed prompt tokens), E hidden, V vocabulary.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from ostinato.llm.models.linear import product

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention import Attend, PrefillBatch
    from ostinato.llm.models.config import DecoderConfig


class Decoder(nn.Module, ABC):
    """A decoder-only language model over paged keys and values.

    Attributes:
        prefix: What a checkpoint's names begin with.
        table: A checkpoint's name of the embedding, which may also be the output head.
        unused: Names that checkpoints may hold and no decoder needs, such as stored masks.
    """

    prefix: ClassVar[str]
    table: ClassVar[str]
    unused: ClassVar[Sequence[re.Pattern[str]]] = ()

    def __init__(self, config: DecoderConfig, *, is_invariant: bool) -> None:
        super().__init__()
        self.config = config
        self.is_invariant = is_invariant

    def settle(self) -> None:
        """Compute, on the weights' device, what follows from the config alone."""

    @abstractmethod
    def run(self, tokens_N: Tensor, positions_N: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        """Return the hidden states (N, E) after the last norm."""

    @abstractmethod
    def head(self) -> Tensor:
        """Return the matrix (V, E) that turns hidden states into logits."""

    @abstractmethod
    def destinations(self) -> dict[str, Tensor]:
        """Return where each tensor of a checkpoint goes: views of the weights, by name.

        A tied output head is not among them.
        """

    def decode(
        self, tokens_B: Tensor, positions_B: Tensor, slots_B: Tensor, attend: Attend
    ) -> Tensor:
        """Return the hidden states (B, E) of one new token per row.

        Args:
            tokens_B, positions_B: int32 or int64.
            slots_B: int64, where the new keys and values go; rows of padding name slot 0.

        Capture:
            Safe.
        """
        return self.run(tokens_B, positions_B, slots_B, attend)

    def prefill(self, batch: PrefillBatch, attend: Attend) -> Tensor:
        """Return the hidden states (T, E) of packed prompt chunks.

        Capture:
            As safe as `attend`.
        """
        return self.run(batch.tokens_T, batch.positions_T, batch.slots_T, attend)

    def logits(self, hidden_NE: Tensor) -> Tensor:
        """Return (N, V) in the dtype of the weights.

        Capture:
            Safe.
        """
        return product(hidden_NE, self.head(), None, is_invariant=self.is_invariant)

    def name_here(self, stored: str) -> str | None:
        """Return the name in `destinations` of a checkpoint's name; None for what is not needed.

        The prefix may be missing, as in checkpoints of the bare model.
        """
        if any(pattern.search(stored) for pattern in self.unused):
            return None
        if stored.startswith((self.prefix, "lm_head.")):
            return stored
        return self.prefix + stored

    @property
    def bytes(self) -> int:
        """Memory of the weights."""
        return sum(weight.nbytes for weight in self.parameters())
