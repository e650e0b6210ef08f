"""One decode step of all rows: embed, layers, logits, sampling, stop test, advance.

This is what is recorded. It takes no tensor: everything that changes from step to step lies in the
resident state, so K replays are K steps. A row that has finished, or that nobody sits in, is
masked: it is given length 0, writes to page 0 and to places beside the ring, and stays as it is.

Shapes: B rows of the bucket, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ostinato.llm.attention.base import AttentionBackend, DecodeAttend
from ostinato.llm.kv.store import KvStore
from ostinato.llm.resident_state import Ending, ResidentState
from ostinato.llm.sampling import Level, sample
from ostinato.llm.sampling_logprobs import logprobs

if TYPE_CHECKING:
    from ostinato.llm.models.decoder import Decoder
    from ostinato.llm.models.fused import Unnormed
    from ostinato.llm.sampling_fused import FusedEnd


class ResidentStep(nn.Module):
    """A module, so that the decoder's weights are found and watched.

    Args:
        fused: What ends the step in kernels of its own; None: plain torch does.
    """

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionBackend,
        store: KvStore,
        state: ResidentState,
        most_logprobs: int,
        fused: FusedEnd | None = None,
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.training = decoder.training
        self._fused = fused
        self._attention, self._store, self._state = attention, store, state
        self._most_logprobs = most_logprobs

    def forward(self, rows: int, pages: int, level: Level, with_logprobs: bool) -> None:
        """Take the first `rows` rows one token further.

        Args:
            rows: The bucket of rows.
            pages: The bucket of pages: no running row needs more.
            level: At least what each running row asks of sampling.
            with_logprobs: Whether some row asks for log probabilities.

        Capture:
            Safe.
        """
        state = self._state.first(rows, pages, self._store.page_tokens)
        most_logprobs = self._most_logprobs if with_logprobs else None
        self.end(state, self._hidden(state), level, most_logprobs)

    def end(
        self,
        state: ResidentState,
        hidden: Tensor | Unnormed,
        level: Level,
        most_logprobs: int | None,
    ) -> None:
        """Choose each running row's next token, and move the row on by it; see `advance`.

        Args:
            hidden: The hidden states (B, E); ahead of the last norm only where a step is fused.

        Capture:
            Safe.
        """
        if self._fused is not None:
            self._fused.take(hidden, state, level, most_logprobs)
        else:
            assert isinstance(hidden, Tensor)
            advance(state, self.decoder.logits(hidden), level, most_logprobs)

    def _hidden(self, state: ResidentState) -> Tensor | Unnormed:
        if self._fused is not None:
            return self._fused.hidden(state, self._attention, self._store)
        # Each row's length with its new token, 0 where it rests, and that token's slot.
        rests_B, next_B = state.standing()
        lengths_B = next_B.masked_fill(rests_B, 0)
        slots_B = self._store.slots_at(state.pages_BP, state.position, lengths_B)
        attend = DecodeAttend(self._attention, self._store, state.pages_BP, lengths_B)
        return self.decoder.decode(state.token, state.position, slots_B, attend)


def advance(
    state: ResidentState, logits_BV: Tensor, level: Level, most_logprobs: int | None
) -> None:
    """Choose the next token of each running row from its logits, and move the row on by it.

    A row whose logits are no numbers produces nothing and ends in error; the others go on.

    Args:
        state: The rows; moved on in place.
        level: At least what each running row asks of sampling.
        most_logprobs: Likeliest tokens to report the log probabilities of; None for none at all.

    Capture:
        Safe.
    """
    rests_B, next_B = state.standing()
    sampled = sample(logits_BV, state.sampling, next_B, level)
    token_B = sampled.token_B
    skips_B = rests_B | sampled.is_broken_B
    emits_B = ~skips_B
    place_B = state.count.masked_fill(skips_B, state.ring.shape[1] - 1)
    state.ring.scatter_(1, place_B[:, None], token_B[:, None])
    if most_logprobs is not None:
        assert state.logprobs is not None
        state.logprobs.note(place_B, logprobs(logits_BV, token_B, most_logprobs))
    if level is Level.FULL:  # a row that needs its history is never run at another level
        state.sampling.note(token_B, next_B, emits_B)
    # A row that rests keeps its place, and its token too: one that is paused goes on from it.
    torch.where(emits_B, token_B, state.token, out=state.token)
    state.position.add_(emits_B)
    state.count.add_(emits_B)
    _end(state, level, rests_B, sampled.is_broken_B, token_B, next_B)


def _end(
    state: ResidentState,
    level: Level,
    rests_B: Tensor,
    is_broken_B: Tensor,
    token_B: Tensor,
    next_B: Tensor,
) -> None:
    """Stop wins over length: a stop token that is also the last one allowed is a stop."""
    is_stop_B = (state.sampling.stop_ids == token_B[:, None]).any(dim=-1)
    is_last_B = next_B >= state.last
    if level is Level.FULL:  # as for its history: a row with a grammar runs at no other level
        paused_B = state.sampling.is_bound * int(Ending.PAUSED)
        outcome_B = paused_B.masked_fill(is_last_B, int(Ending.LENGTH))
    else:
        outcome_B = is_last_B * int(Ending.LENGTH)
    outcome_B = outcome_B.masked_fill(is_stop_B, int(Ending.STOP))
    outcome_B = outcome_B.masked_fill(is_broken_B, int(Ending.ERROR))
    state.ending.copy_(torch.where(rests_B, state.ending, outcome_B))
