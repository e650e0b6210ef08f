"""What every decoder can do, whatever its architecture.

Decoding one token per row and prefilling packed prompts are the same computation over N tokens;
they differ in what `attend` does. So an architecture writes one `run`, and gets both.

Shapes: N tokens (B rows or T packed prompt tokens), E hidden, V vocabulary.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import nn

from ostinato.llm.models.layers import Embedding
from ostinato.llm.models.linear import product
from ostinato.llm.models.paths import DecodePath

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention import Attend, PrefillBatch
    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.linear import Place
    from ostinato.llm.models.ops import LayerOps
    from ostinato.llm.models.sources import WeightSource


class Decoder(nn.Module, ABC):
    """A decoder-only language model over paged keys and values.

    Attributes:
        prefix: What a checkpoint's names begin with.
        table: A checkpoint's name of the embedding, which may also be the output head.
        ops: What is done between products; architectures may do without.
        is_invariant: Whether a token's bits do not depend on the tokens computed with it.
        unused: Names that checkpoints may hold and no decoder needs, such as stored masks.
    """

    prefix: ClassVar[str]
    table: ClassVar[str]
    unused: ClassVar[Sequence[re.Pattern[str]]] = ()

    def __init__(self, config: DecoderConfig, *, ops: LayerOps, is_invariant: bool) -> None:
        super().__init__()
        self.config = config
        self.ops = ops
        self.is_invariant = is_invariant

    @property
    def path(self) -> Literal["native", "any_hf"]:
        """Whose code runs: this engine's own, or transformers' around this engine's attention."""
        return "native" if self.config.foreign is None else "any_hf"

    @property
    def reason(self) -> str:
        """Why the model does not run on this engine's own code; empty if it does."""
        return "" if self.config.foreign is None else self.config.foreign.reason

    @property
    def decode_path(self) -> DecodePath:
        """By which way the layers are computed, and why."""
        why = f"{self.config.architecture} has no fused layers"
        return DecodePath("composable", f"{why}: {self.reason}" if self.reason else why)

    def settle(self) -> None:
        """Compute, on the weights' device, what follows from the config alone."""

    def choose_plans(self) -> None:
        """Take the plans that were measured for such a model and device, if any were."""

    def translate(self, source: WeightSource) -> WeightSource:
        """Return the source with the names that this decoder knows, if it has others."""
        return source

    def prove(self) -> None:
        """Check on the loaded weights what could not be known before."""

    @abstractmethod
    def run(self, tokens_N: Tensor, positions_N: Tensor, slots_N: Tensor, attend: Attend) -> Tensor:
        """Return the hidden states (N, E) after the last norm."""

    @abstractmethod
    def head(self) -> Tensor:
        """Return the matrix (V, E) that turns hidden states into logits."""

    @abstractmethod
    def destinations(self) -> Mapping[str, Place]:
        """Return where each tensor of a checkpoint goes: views of the weights, by name.

        A tied output head is not among them.
        """

    def tied(self) -> dict[str, str]:
        """Return the names of tensors that are another one of the model, with the name of that."""
        return {"lm_head.weight": self.table} if self.config.is_tied else {}

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

    @property
    def read_bytes(self) -> int:
        """Bytes that a decode step reads: all weights but tables that are only looked up."""
        head, kinds = self.head(), (nn.Embedding, Embedding)
        tables = (module.weight for module in self.modules() if isinstance(module, kinds))
        looked_up = {id(table) for table in tables if table is not head}
        return sum(weight.nbytes for weight in self.parameters() if id(weight) not in looked_up)
