"""What sampling knows of every row, in device tensors that keep their addresses.

A recording reads these tensors, so that rows come and go, and their parameters differ, without a
new recording. A row's numbers lie side by side, so that joining is a handful of copies.

The token ids of a row (its history) and the counts of its own output serve the penalties; see
`sampling_penalties.py`.

Shapes: B rows, F fields, S room for stop ids, N room for biases, W room for token ids plus one
column that takes what masked rows write, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ostinato.errors import UsageError
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling_draws import MOST_VOCABULARY, hash_seed

STOP_ROOM = 32
"""Stop ids that fit in a row, those of the model included."""
BIAS_ROOM = 300
"""Biased tokens that fit in a row."""

_STREAM, _TOP_K, _MIN_TOKENS, _PRODUCED, _WHOLE = range(5)
_TEMPERATURE, _TOP_P, _MIN_P, _REPETITION, _PRESENCE, _FREQUENCY, _REAL = range(7)
_STOPS = slice(_WHOLE, _WHOLE + STOP_ROOM)
_BIASED = slice(_WHOLE + STOP_ROOM, _WHOLE + STOP_ROOM + BIAS_ROOM)
_BIASES = slice(_REAL, _REAL + BIAS_ROOM)
_NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class SamplingState:
    """The rows' parameters and what they have produced.

    Attributes:
        whole_BF: int64: whole numbers, stop ids, ids of biased tokens.
        real_BF: f32: real numbers, biases.
        history_BW: int32 ids of the row's tokens by position.
        counts_BV: int32, how often each token is in the row's own output.
        width: Columns of the history that a step looks at: no running row knows more tokens.
    """

    whole_BF: Tensor
    real_BF: Tensor
    history_BW: Tensor
    counts_BV: Tensor
    width: int

    @classmethod
    def empty(cls, rows: int, vocabulary: int, tokens: int, device: torch.device) -> Self:
        """Make the state of `rows` rows of at most `tokens` tokens each.

        Raises:
            UsageError: OST5022, a vocabulary whose odds could not be summed exactly.
        """
        if vocabulary > MOST_VOCABULARY:
            raise UsageError(
                f"the vocabulary has {vocabulary} tokens, sampling takes {MOST_VOCABULARY}",
                code="OST5022",
                remedy="use a model with a smaller vocabulary",
            )
        return cls(
            whole_BF=torch.zeros(rows, _BIASED.stop, dtype=torch.long, device=device),
            real_BF=torch.zeros(rows, _BIASES.stop, device=device),
            history_BW=torch.zeros(rows, tokens + 1, dtype=torch.int32, device=device),
            counts_BV=torch.zeros(rows, vocabulary, dtype=torch.int32, device=device),
            width=tokens,
        )

    def join(
        self,
        row: int,
        ids: Sequence[int],
        params: SamplingParams,
        *,
        prompt_tokens: int,
        stop_ids: Sequence[int],
        seed: int,
    ) -> None:
        """Set a row for a request that knows the tokens `ids`.

        Args:
            ids: The prompt, and what was produced before the row was preempted.
            prompt_tokens: How many of them are the prompt.
            stop_ids: What ends the row: the model's own unless ignored, and the request's.
            seed: Names the row's random numbers.

        Raises:
            UsageError: OST5020, more stop ids or biases than fit; OST5021, a bias for no token.

        Capture:
            Never recorded. Queues copies, and does not wait for the device.
        """
        whole, real = self._packed(params, stop_ids, seed, len(ids) - prompt_tokens)
        send(self.whole_BF[row], torch.tensor(whole))
        send(self.real_BF[row], torch.tensor(real, dtype=torch.float32))
        send(self.history_BW[row, : len(ids)], torch.tensor(ids, dtype=torch.int32))
        counts_V = self.counts_BV[row].zero_()
        if len(ids) > prompt_tokens:
            output = self.history_BW[row, prompt_tokens : len(ids)].long()
            counts_V.scatter_add_(0, output, torch.ones_like(output, dtype=torch.int32))

    def _packed(
        self, params: SamplingParams, stop_ids: Sequence[int], seed: int, produced: int
    ) -> tuple[list[int], list[float]]:
        vocabulary = self.counts_BV.shape[1]
        stops = [token for token in dict.fromkeys(stop_ids) if 0 <= token < vocabulary]
        biases = params.logit_bias
        _check_room("stop ids", len(stops), STOP_ROOM)
        _check_room("logit biases", len(biases), BIAS_ROOM)
        strangers = [token for token in biases if not 0 <= token < vocabulary]
        if strangers:
            raise UsageError(
                f"logit_bias names token {strangers[0]}, the vocabulary ends at {vocabulary - 1}",
                code="OST5021",
                remedy="take that token out of logit_bias",
            )
        whole = [hash_seed(seed), params.top_k, params.min_tokens, produced]
        whole += stops + [_NO_TOKEN] * (STOP_ROOM - len(stops))
        # An unused place adds 0 to token 0, which changes nothing.
        whole += list(biases) + [0] * (BIAS_ROOM - len(biases))
        real = [params.temperature, params.top_p, params.min_p]
        real += [params.repetition_penalty, params.presence_penalty, params.frequency_penalty]
        real += list(biases.values()) + [0.0] * (BIAS_ROOM - len(biases))
        return whole, real

    def note(self, token_B: Tensor, positions_B: Tensor, emits_B: Tensor) -> None:
        """Add each emitting row's new token, which stands at `positions_B`, to what it knows.

        Capture:
            Safe.
        """
        beside = self.history_BW.shape[1] - 1
        at_B1 = positions_B.masked_fill(~emits_B, beside).clamp(max=beside)[:, None]
        self.history_BW.scatter_(1, at_B1, token_B[:, None].int())
        self.counts_BV.scatter_add_(1, token_B[:, None], emits_B[:, None].int())
        self.whole_BF[:, _PRODUCED].add_(emits_B)

    def first(self, rows: int, width: int) -> SamplingState:
        """Return the same memory, of the first `rows` rows, to look at `width` tokens each."""
        return SamplingState(
            self.whole_BF[:rows],
            self.real_BF[:rows],
            self.history_BW[:rows],
            self.counts_BV[:rows],
            width,
        )

    def pick(self, rows: Tensor) -> SamplingState:
        """Return copies of some rows."""
        return SamplingState(
            self.whole_BF.index_select(0, rows),
            self.real_BF.index_select(0, rows),
            self.history_BW.index_select(0, rows),
            self.counts_BV.index_select(0, rows),
            self.width,
        )

    def put(self, rows: Tensor, picked: SamplingState) -> None:
        """Copy rows that were picked, and have moved on, back to their place."""
        self.whole_BF.index_copy_(0, rows, picked.whole_BF)
        self.history_BW.index_copy_(0, rows, picked.history_BW)
        self.counts_BV.index_copy_(0, rows, picked.counts_BV)

    @property
    def stream(self) -> Tensor:
        """Where each row's random numbers begin, (B,)."""
        return self.whole_BF[:, _STREAM]

    @property
    def top_k(self) -> Tensor:
        """Tokens to draw from, (B,); 0 is off."""
        return self.whole_BF[:, _TOP_K]

    @property
    def min_tokens(self) -> Tensor:
        """New tokens before which no stop id is drawn, (B,)."""
        return self.whole_BF[:, _MIN_TOKENS]

    @property
    def produced(self) -> Tensor:
        """New tokens so far, (B,)."""
        return self.whole_BF[:, _PRODUCED]

    @property
    def stop_ids(self) -> Tensor:
        """Stop ids, (B, S); -1 where there is none."""
        return self.whole_BF[:, _STOPS]

    @property
    def biased(self) -> Tensor:
        """Ids of biased tokens, (B, N)."""
        return self.whole_BF[:, _BIASED]

    @property
    def biases(self) -> Tensor:
        """What is added to their logits, (B, N)."""
        return self.real_BF[:, _BIASES]

    @property
    def temperature(self) -> Tensor:
        """Temperature, (B,); 0 is greedy."""
        return self.real_BF[:, _TEMPERATURE]

    @property
    def top_p(self) -> Tensor:
        """Mass to draw from, (B,)."""
        return self.real_BF[:, _TOP_P]

    @property
    def min_p(self) -> Tensor:
        """Least share of the likeliest token's probability, (B,)."""
        return self.real_BF[:, _MIN_P]

    @property
    def repetition(self) -> Tensor:
        """Repetition penalty, (B,); 1 is off."""
        return self.real_BF[:, _REPETITION]

    @property
    def presence(self) -> Tensor:
        """Presence penalty, (B,); 0 is off."""
        return self.real_BF[:, _PRESENCE]

    @property
    def frequency(self) -> Tensor:
        """Frequency penalty, (B,); 0 is off."""
        return self.real_BF[:, _FREQUENCY]


def _check_room(what: str, given: int, room: int) -> None:
    if given > room:
        raise UsageError(
            f"a request has {given} {what}, a row holds {room}",
            code="OST5020",
            remedy=f"give at most {room} {what}",
        )


def send(target: Tensor, content: Tensor) -> None:
    """Copy host content to its place without waiting: a plain copy would wait for the stream."""
    if target.is_cuda:
        content = content.pin_memory()
    target.copy_(content, non_blocking=True)
