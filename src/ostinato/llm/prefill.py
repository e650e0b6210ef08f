"""Prompts into the store: packed chunks of several requests through the decoder at once.

The scheduler prefills up to the last token of a prompt, which is the first input of the decode
loop: so a request's first token is sampled where all its others are. Only where nobody else decodes
is the last token prefilled too, and the step saved (`first_tokens.py`).

Queueing the kernels of a short prefill one by one takes the host longer than the device needs to
run them. So, where the attention backend reads the layout on the device, short prefills are
recorded in buckets of tokens, and a recording stays only if it was measured to be faster. A long
one runs as several of those (`prefill_parts.py`), or eagerly where they would be too short, and so
does everything on a CPU.
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
from ostinato.llm.prefill_parts import parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.decoder import Decoder

TOKENS = (*(16, 32, 64, 128, 192, 256, 384, 512, 768, 1024), *(1536, 2048, 3072, 4096, 6144, 8192))
"""Buckets of tokens."""
CHUNKS = (16, 64, 256)
"""Buckets of chunks: an empty one costs a few programs that end at once."""
SHORT = 128
"""Tokens of a prompt that many others may come with."""
_EVEN = 64
_MOST_BYTES = 128 * 2**20
"""Of what one layer keeps at a time: a prefill that needs more is none that the host holds up, and
its recording would hold that memory for good."""
_PART = 2048
"""Tokens that a part of a longer prefill has at least: each part reads all weights."""


def buckets_for(config: DecoderConfig, dtype: torch.dtype, most_tokens: int) -> tuple[int, ...]:
    """Return the tokens of the prefills that are worth recording.

    On an H200 a prefill of 8192 tokens takes SmolLM2-135M 5 ms and Llama-3-8B 170, and the host
    some 10 to queue either, kernel by kernel.

    Args:
        most_tokens: What one prefill takes at the most. Full ones are the rule where many prompts
            wait, so that is a bucket itself.
    """
    inner = config.inner or 4 * config.hidden  # of a foreign model it is not known
    numbers = 2 * config.hidden + 3 * inner  # residual, its norm, gate and up, their product
    full = -(-most_tokens // _EVEN) * _EVEN
    most = min(full, _MOST_BYTES // (numbers * dtype.itemsize))
    return tuple(tokens for tokens in sorted({*TOKENS, full}) if tokens <= most)


def tokens_per_plan(config: DecoderConfig, dtype: torch.dtype, most: int) -> int:
    """Return how many prompt tokens one plan takes on a GPU: at most `most`.

    Whoever decodes waits for a plan, and so do the first tokens of its prompts. A prefill in parts
    costs the same whether two parts are a plan or four; but a plan that is one part alone would
    have as many decode steps beside it, of few rows each.
    """
    part = _part_of(buckets_for(config, dtype, most))
    return most if part is None else min(most, 2 * part)


def _part_of(buckets: Sequence[int]) -> int | None:
    return buckets[-1] if buckets and buckets[-1] >= _PART else None


class Prefiller:
    """Writes the keys and values of prompt chunks; never waits for the device.

    Attributes:
        buckets: Tokens for which recordings are made; none where the attention backend reads the
            layout on the host.
        part_tokens: Of the parts of a prefill that is too long for a recording; None: it runs
            eagerly.

    Args:
        decoder: An `ostinato.llm.models` decoder.
        max_pages: Pages that one request may need; None: as many as the model has positions for.
        buckets: Tokens for which recordings are made, ascending; see `buckets_for`.
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
        buckets: Sequence[int] = (),
        budget: int | str = "2GiB",
        backend: BackendName = "auto",
    ) -> None:
        self._store, self._width = store, decoder.config.hidden
        self.buckets = tuple(buckets) if attention.captures_prefill else ()
        self.part_tokens = _part_of(self.buckets)
        device = self._device = store.keys.device
        if max_pages is None:
            max_pages = -(-decoder.config.max_positions // store.page_tokens)
        most = (self.buckets[-1], CHUNKS[-1]) if self.buckets else (1, 1)
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

    def run(self, chunks: Sequence[PromptChunk]) -> Tensor:
        """Cache `chunks`: at most one of each request, its earlier tokens being cached already.

        Returns:
            (S, E), the hidden state of each chunk's last token.
        """
        if not chunks:
            return self._store.keys.new_empty(0, 0)
        with torch.inference_mode():
            if self.part_tokens is None:
                return self._run(chunks)
            parts = list(parts_of(chunks, self.part_tokens, CHUNKS[-1]))
            lasts_SE = [self._run(part.chunks)[: part.ends] for part in parts]
            return lasts_SE[0] if len(lasts_SE) == 1 else torch.cat(lasts_SE)

    def _run(self, chunks: Sequence[PromptChunk]) -> Tensor:
        bucket = self._bucket(sum(len(chunk.token_ids) for chunk in chunks), len(chunks))
        if bucket is None:
            last_SE = self._run_eagerly(chunks)
        else:
            self._memory.send(chunks, *bucket)
            last_SE = self._runner(*bucket)
        return last_SE[: len(chunks)]

    def warm(self, tokens: int, chunks: int = 1) -> Decision | None:
        """Record the prefill of so many tokens ahead; None if none is recorded of that size.

        If such a prefill runs eagerly, it is run once, so that what it needs is compiled. It is
        recorded, or run, with no chunk at all, so it caches nothing.
        """
        bucket = self._bucket(tokens, chunks)
        with torch.inference_mode():
            if bucket is None:
                if self.buckets and self.part_tokens is None:
                    self._step.prefill(self._packed((), tokens, chunks))
                return None
            self._memory.send((), *bucket)
            return self._runner.warm(*bucket)

    def report(self) -> Report:
        """Return what happened to the recordings so far."""
        return self._runner.report()

    def close(self) -> None:
        """Give the recordings back."""
        self._runner.close()

    def no_hidden(self, chunks: int) -> Tensor:
        """Return hidden states of the form that `run` returns for so many chunks, all zero."""
        return self._store.keys.new_zeros(chunks, self._width)

    def _bucket(self, tokens: int, chunks: int) -> tuple[int, int] | None:
        """Return the room that such a prefill is recorded with; None: it runs eagerly."""
        if not self.buckets or tokens > self.buckets[-1] or chunks > CHUNKS[-1]:
            return None
        room = self.buckets[bisect_left(self.buckets, tokens)]
        # Fewer chunks get the recording of short prompts, lest each number of them have its own.
        chunks = min(max(chunks, 1 + room // SHORT), CHUNKS[-1])
        return room, CHUNKS[bisect_left(CHUNKS, chunks)]

    def _run_eagerly(self, chunks: Sequence[PromptChunk]) -> Tensor:
        store, device = self._store, self._store.keys.device
        if not self.buckets:
            return self._step.prefill(pack(chunks, page_tokens=store.page_tokens, device=device))
        tokens = sum(len(chunk.token_ids) for chunk in chunks)
        return self._step.prefill(self._packed(chunks, tokens, len(chunks)))

    def _packed(self, chunks: Sequence[PromptChunk], tokens: int, room: int) -> PrefillBatch:
        """Return a batch in memory of its own, with room for so many tokens and chunks."""
        # A kernel is compiled for the number of chunks and the width of the table: few of each. And
        # products are quicker, and kernels fewer, where the number of tokens is even enough.
        tokens = -(-tokens // _EVEN) * _EVEN
        wide = 1 << max(4, (room - 1).bit_length())
        memory = PrefillMemory(tokens, wide, self._pages, self._store.page_tokens, self._device)
        return memory.batch(tokens, wide, memory.send(chunks, tokens, wide))


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

    def forward(self, tokens: int, chunks: int) -> Tensor:
        """Cache what was sent, with room for so many tokens and chunks; see `prefill`.

        Capture:
            Safe, if the attention backend captures prefills.
        """
        return self.prefill(self._memory.batch(tokens, chunks))

    def prefill(self, batch: PrefillBatch) -> Tensor:
        """Cache a packed batch, and return the hidden state of each chunk's last token, (S, E).

        Capture:
            As safe as the attention backend.
        """
        attend = PrefillAttend(self._attention, self._store, batch)
        hidden_TE = self.decoder.prefill(batch, attend)
        last_S = (batch.row_start_S1[1:] - 1).clamp(min=0)
        return hidden_TE.index_select(0, last_S)
