"""A decoder over poisoned, shuffled pages: what an engine does, in the fewest lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.llm.attention import (
    AttentionBackend,
    DecodeAttend,
    PrefillAttend,
    PromptChunk,
    choose,
    pack,
)
from ostinato.llm.kv.store import KvStore
from ostinato.llm.models import Decoder, build, read_config

PAGE_TOKENS = 16


class PagedModel:
    """One decoder, its store, and pages handed out in a scattered order.

    Every page starts full of not-a-numbers, page 0 included: what is not written must not be read.
    """

    def __init__(
        self, decoder: Decoder, pages: int = 64, *, is_invariant: bool | None = None
    ) -> None:
        config = decoder.config
        weight = next(decoder.parameters())
        self.decoder = decoder
        self.backend: AttentionBackend
        self.backend, self.choice = choose(
            config.attention, device=weight.device, dtype=weight.dtype, is_invariant=is_invariant
        )
        self.device = weight.device
        self.store = KvStore(
            config.layers,
            pages,
            PAGE_TOKENS,
            config.kv_heads,
            config.head_dim,
            weight.dtype,
            weight.device,
        )
        self.store.keys.fill_(torch.nan)
        self.store.values.fill_(torch.nan)
        order = torch.randperm(pages - 1, generator=torch.Generator().manual_seed(5)) + 1
        self.free = order.tolist()
        self.pages: dict[int, list[int]] = {}

    @classmethod
    def load(cls, folder: Path, quantize: Any = "none", **options: Any) -> PagedModel:
        """Load a folder in float32 on the CPU."""
        decoder = build(
            read_config(folder),
            dtype=torch.float32,
            device=torch.device("cpu"),
            folder=folder,
            quantize=quantize,
        )
        return cls(decoder, **options)

    def grow(self, row: int, tokens: int) -> list[int]:
        """Return the row's pages, grown to hold `tokens`."""
        held = self.pages.setdefault(row, [])
        while len(held) * PAGE_TOKENS < tokens:
            held.append(self.free.pop())
        return held

    @torch.inference_mode()
    def prefill(
        self,
        chunks: Sequence[tuple[int, int, Sequence[int]]],
        *,
        tokens_wide: int | None = None,
        pages_wide: int | None = None,
    ) -> list[Tensor]:
        """Run packed chunks of (row, start, token ids); return each one's logits, (count, V)."""
        batch = pack(
            [PromptChunk(ids, at, self.grow(row, at + len(ids))) for row, at, ids in chunks],
            page_tokens=PAGE_TOKENS,
            device=self.device,
            tokens_wide=tokens_wide,
            pages_wide=pages_wide,
        )
        attend = PrefillAttend(self.backend, self.store, batch)
        logits = self.decoder.logits(self.decoder.prefill(batch, attend))
        counts = [end - start for start, end in pairwise(batch.row_start)]
        return list(logits[: batch.row_start[-1]].split(counts))

    @torch.inference_mode()
    def decode(
        self, rows: Sequence[tuple[int, int, int] | None], *, pages_wide: int | None = None
    ) -> Tensor:
        """Run (row, position, token) each, None for padding; return the logits (B, V)."""
        step = DecodeStep(self, rows, pages_wide=pages_wide)
        return step()

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """Continue a prompt, one row at a time."""
        row = len(self.pages)
        token = int(self.prefill([(row, 0, prompt)])[0][-1].argmax())
        found = [token]
        while len(found) < count:
            at = len(prompt) + len(found) - 1
            found.append(int(self.decode([(row, at, found[-1])])[0].argmax()))
        return found


class DecodeStep:
    """The fixed tensors of one decode step and the step itself, without arguments."""

    def __init__(
        self,
        model: PagedModel,
        rows: Sequence[tuple[int, int, int] | None],
        *,
        pages_wide: int | None = None,
    ) -> None:
        tables = [model.grow(row[0], row[1] + 1) if row else [] for row in rows]
        wide = pages_wide or max(1, *map(len, tables))
        # What stands behind a row's own pages is no page at all.
        self.pages_BP = torch.tensor(
            [(table + [1_000_000] * wide)[:wide] for table in tables], dtype=torch.int32
        ).to(model.device)
        self.tokens_B = torch.tensor([row[2] if row else 0 for row in rows]).to(model.device)
        self.positions_B = torch.tensor([row[1] if row else 0 for row in rows]).to(model.device)
        self.lengths_B = torch.tensor(
            [row[1] + 1 if row else 0 for row in rows], dtype=torch.int32
        ).to(model.device)
        # Not the model itself: a recording would have to watch its lists of pages.
        self.decoder, self.store = model.decoder, model.store
        self.attend = DecodeAttend(model.backend, model.store, self.pages_BP, self.lengths_B)

    def __call__(self) -> Tensor:
        slots = self.store.slots_at(self.pages_BP, self.positions_B, self.lengths_B)
        hidden = self.decoder.decode(self.tokens_B, self.positions_B, slots, self.attend)
        return self.decoder.logits(hidden)
