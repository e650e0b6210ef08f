"""Prompts into the store: packed chunks of several requests through the decoder at once.

No logits are asked for. The scheduler prefills up to the last token of a prompt, which is the first
input of the decode loop: so a request's first token is sampled where all its others are.

Queueing the kernels of a short prefill one by one takes the host longer than the device needs to
run them. So, where the attention backend reads the layout on the device, short prefills are
recorded in buckets of tokens, and a recording stays only if it was measured to be faster. Long ones
run eagerly, and so does everything on a CPU.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from ostinato.graphs import Decision, Report, graphed
from ostinato.graphs.options import BackendName
from ostinato.llm.attention.base import AttentionBackend, PrefillAttend
from ostinato.llm.attention.batch import PrefillBatch, PromptChunk, pack
from ostinato.llm.kv.store import KvStore
from ostinato.llm.prefill_memory import PrefillMemory

if TYPE_CHECKING:
    from ostinato.llm.models.decoder import Decoder

TOKENS = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024)
"""Buckets of tokens."""
CHUNKS = (16, 64)
"""Buckets of chunks: an empty one costs a few programs that end at once."""


class Prefiller:
    """Writes the keys and values of prompt chunks; never waits for the device.

    Args:
        decoder: An `ostinato.llm.models` decoder.
        max_pages: Pages that one request may need; None: as many as the model has positions for.
        buckets: Tokens for which recordings are made, ascending.
        budget: Bytes that the recordings may keep.
        backend: As in `graphed`.
    """

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionBackend,
        store: KvStore,
        *,
        max_pages: int | None = None,
        buckets: Sequence[int] = TOKENS,
        budget: int | str = "2GiB",
        backend: BackendName = "auto",
    ) -> None:
        self._store, self._buckets = store, tuple(buckets)
        self._captures = attention.captures_prefill and bool(buckets)
        device = store.keys.device
        if max_pages is None:
            max_pages = -(-decoder.config.max_positions // store.page_tokens)
        most = (self._buckets[-1], CHUNKS[-1]) if self._captures else (1, 1)
        self._pages = min(max_pages, store.pages)
        self._memory = PrefillMemory(*most, self._pages, store.page_tokens, device)
        self._step = PrefillStep(decoder, attention, store, self._memory)
        self._runner = graphed(
            self._step,
            admit_after=2,
            warmups=1,
            budget=budget,
            drop_unprofitable=True,
            backend=backend,
            scratch=(store.keys, store.values),
            memory="shared",
        )

    def run(self, chunks: Sequence[PromptChunk]) -> None:
        """Cache `chunks`: at most one of each request, its earlier tokens being cached already."""
        if not chunks:
            return
        with torch.inference_mode():
            bucket = self._bucket(sum(len(chunk.token_ids) for chunk in chunks), len(chunks))
            if bucket is None:
                self._run_eagerly(chunks)
            else:
                self._memory.send(chunks, *bucket)
                self._runner(*bucket)

    def warm(self, tokens: int, chunks: int = 1) -> Decision | None:
        """Record the prefill of so many tokens ahead; None if such a prefill runs eagerly.

        It is recorded with no chunk at all, so it caches nothing.
        """
        bucket = self._bucket(tokens, chunks)
        if bucket is None:
            return None
        with torch.inference_mode():
            self._memory.send((), *bucket)
            return self._runner.warm(*bucket)

    def report(self) -> Report:
        """Return what happened to the recordings so far."""
        return self._runner.report()

    def close(self) -> None:
        """Give the recordings back."""
        self._runner.close()

    def _bucket(self, tokens: int, chunks: int) -> tuple[int, int] | None:
        """Return the room that such a prefill is recorded with; None: it runs eagerly."""
        if not self._captures or tokens > self._buckets[-1] or chunks > CHUNKS[-1]:
            return None
        return (
            self._buckets[bisect_left(self._buckets, tokens)],
            CHUNKS[bisect_left(CHUNKS, chunks)],
        )

    def _run_eagerly(self, chunks: Sequence[PromptChunk]) -> None:
        store, device = self._store, self._store.keys.device
        if not self._captures:
            batch = pack(chunks, page_tokens=store.page_tokens, device=device)
        else:
            # A kernel is compiled for the number of chunks and the width of the table: few of each.
            tokens = sum(len(chunk.token_ids) for chunk in chunks)
            wide = 1 << max(4, (len(chunks) - 1).bit_length())
            memory = PrefillMemory(tokens, wide, self._pages, store.page_tokens, device)
            batch = memory.batch(tokens, wide, memory.send(chunks, tokens, wide))
        self._step.prefill(batch)


class PrefillStep(nn.Module):
    """What is recorded; a module, so that the decoder's weights are found and watched."""

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionBackend,
        store: KvStore,
        memory: PrefillMemory,
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.training = decoder.training
        self._attention, self._store, self._memory = attention, store, memory

    def forward(self, tokens: int, chunks: int) -> None:
        """Cache what was sent, with room for so many tokens and chunks.

        Capture:
            Safe, if the attention backend captures prefills.
        """
        self.prefill(self._memory.batch(tokens, chunks))

    def prefill(self, batch: PrefillBatch) -> None:
        """Cache a packed batch.

        Capture:
            As safe as the attention backend.
        """
        self.decoder.prefill(batch, PrefillAttend(self._attention, self._store, batch))
