"""What sampling knows of every row, in device tensors that keep their addresses.

A recording reads these tensors, so that rows come and go, and their parameters differ, without a
new recording. A row's numbers lie side by side, so that joining is a handful of copies.

The token ids of a row (its history) and the counts of its own output serve the penalties; see
`sampling_penalties.py`.

Shapes: B rows, F fields, S room for stop ids, N room for biases, W room for token ids plus one
column that takes what masked rows write, V vocabulary, X words of 32 bits that hold one bit per
token, R rows that are named, L ids of the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack_into
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ostinato.errors import UsageError
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling_draws import MOST_VOCABULARY, hash_seed
from ostinato.llm.sending import bring

STOP_ROOM = 32
"""Stop ids that fit in a row, those of the model included."""
BIAS_ROOM = 300
"""Biased tokens that fit in a row."""

# Which column of a row is what; kernels read them too.
STREAM, TOP_K, _MIN_TOKENS, PRODUCED, BOUND, WHOLE = range(6)
TEMPERATURE, TOP_P, MIN_P, _REPETITION, _PRESENCE, _FREQUENCY, _REAL = range(7)
_STOPS = slice(WHOLE, WHOLE + STOP_ROOM)
_BIASED = slice(WHOLE + STOP_ROOM, WHOLE + STOP_ROOM + BIAS_ROOM)
_BIASES = slice(_REAL, _REAL + BIAS_ROOM)
_NO_TOKEN = -1


class Arrival(NamedTuple):
    """A request that is to sit in a row, checked.

    Attributes:
        ids: All tokens known.
        prompt_tokens: How many of them are the prompt.
        stop_ids: What ends the row.
        stream: Where its random numbers begin.
    """

    row: int
    ids: tuple[int, ...]
    params: SamplingParams
    prompt_tokens: int
    stop_ids: tuple[int, ...]
    stream: int


def pack(
    arrivals: Sequence[Arrival],
    whole_RF: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    real_RF: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    ids_RL: np.ndarray[tuple[int, int], np.dtype[np.int32]],
) -> None:
    """Write a line for each of some arrivals, as the rows of a state hold them.

    All lines of a column at once: numpy takes as long for one number as for a hundred.

    Args:
        arrivals: At least one.
        ids_RL: Contiguous; behind the ids of an arrival, its line stays as it is.
    """
    # An unused place of a bias adds 0 to token 0, which changes nothing.
    whole_RF[:, _BIASED] = 0
    real_RF[:, _BIASES] = 0
    whole_RF[:, _STOPS] = _NO_TOKEN
    stops = max(len(each.stop_ids) for each in arrivals)
    whole_RF[:, : WHOLE + stops] = [
        (
            each.stream,
            each.params.top_k,
            each.params.min_tokens,
            len(each.ids) - each.prompt_tokens,
            each.params.schema is not None,
            *each.stop_ids,
            *(_NO_TOKEN,) * (stops - len(each.stop_ids)),
        )
        for each in arrivals
    ]
    with np.errstate(over="ignore"):  # beyond float32 is infinite: all tokens are equal
        real_RF[:, :_REAL] = [
            (
                each.params.temperature,
                each.params.top_p,
                each.params.min_p,
                each.params.repetition_penalty,
                each.params.presence_penalty,
                each.params.frequency_penalty,
            )
            for each in arrivals
        ]
    memory = ids_RL.data
    for line, each in enumerate(arrivals):
        biases = each.params.logit_bias
        if biases:
            whole_RF[line, _BIASED][: len(biases)] = list(biases)
            real_RF[line, _BIASES][: len(biases)] = list(biases.values())
        # Twice as fast as an assignment, which asks of each id what it is.
        pack_into(f"{len(each.ids)}i", memory, line * ids_RL.strides[0], *each.ids)


@dataclass(frozen=True, slots=True)
class SamplingState:
    """The rows' parameters and what they have produced.

    Attributes:
        whole_BF: int64: whole numbers, stop ids, ids of biased tokens.
        real_BF: f32: real numbers, biases.
        history_BW: int32 ids of the row's tokens by position.
        counts_BV: int32, how often each token is in the row's own output.
        allowed_BX: int32, which tokens the grammar of a bound row lets come next.
        width: Columns of the history that a step looks at: no running row knows more tokens.
    """

    whole_BF: Tensor
    real_BF: Tensor
    history_BW: Tensor
    counts_BV: Tensor
    allowed_BX: Tensor
    width: int

    @classmethod
    def empty(cls, rows: int, vocabulary: int, tokens: int, device: torch.device) -> Self:
        """Make the state of `rows` rows of at most `tokens` tokens each.

        Raises:
            UsageError: OST5022, a vocabulary whose odds could not be summed exactly.
        """
        check_vocabulary(vocabulary)
        return cls(
            whole_BF=torch.zeros(rows, _BIASED.stop, dtype=torch.long, device=device),
            real_BF=torch.zeros(rows, _BIASES.stop, device=device),
            history_BW=torch.zeros(rows, tokens + 1, dtype=torch.int32, device=device),
            counts_BV=torch.zeros(rows, vocabulary, dtype=torch.int32, device=device),
            allowed_BX=torch.zeros(rows, words_for(vocabulary), dtype=torch.int32, device=device),
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
        arrival = self.arrival(
            row, ids, params, prompt_tokens=prompt_tokens, stop_ids=stop_ids, seed=seed
        )
        self.settle([arrival], bring(torch.tensor([row]), self.whole_BF.device))

    def arrival(
        self,
        row: int,
        ids: Sequence[int],
        params: SamplingParams,
        *,
        prompt_tokens: int,
        stop_ids: Sequence[int],
        seed: int,
    ) -> Arrival:
        """Check what `join` is given, and send nothing yet."""
        vocabulary = self.counts_BV.shape[1]
        stops = tuple(token for token in dict.fromkeys(stop_ids) if 0 <= token < vocabulary)
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
        return Arrival(row, tuple(ids), params, prompt_tokens, stops, hash_seed(seed))

    def settle(self, arrivals: Sequence[Arrival], rows_R: Tensor) -> None:
        """Queue the copies that set the rows of `arrivals`: as many for one as for all.

        Args:
            rows_R: int64, their rows, on the device of the state.

        Capture:
            Never recorded. Does not wait for the device.
        """
        device = self.whole_BF.device
        whole_RF = torch.empty(len(arrivals), self.whole_BF.shape[1], dtype=torch.long)
        real_RF = torch.empty(len(arrivals), self.real_BF.shape[1])
        longest = max(len(each.ids) for each in arrivals)
        known_RL = torch.zeros(len(arrivals), longest, dtype=torch.int32)
        pack(arrivals, whole_RF.numpy(), real_RF.numpy(), known_RL.numpy())
        self.whole_BF.index_copy_(0, rows_R, bring(whole_RF, device))
        self.real_BF.index_copy_(0, rows_R, bring(real_RF, device))
        self.history_BW[:, :longest].index_copy_(0, rows_R, bring(known_RL, device))
        self.counts_BV.index_fill_(0, rows_R, 0)
        self.count_again(arrivals)

    def count_again(self, arrivals: Sequence[Arrival]) -> None:
        """Count what rows had produced before they were preempted; their counts are zero."""
        for arrival in arrivals:
            if len(arrival.ids) > arrival.prompt_tokens:  # it goes on after a preemption
                span = slice(arrival.prompt_tokens, len(arrival.ids))
                output = self.history_BW[arrival.row, span].long()
                ones = torch.ones_like(output, dtype=torch.int32)
                self.counts_BV[arrival.row].scatter_add_(0, output, ones)

    def allow(self, rows_R: Tensor, words_RX: Tensor) -> None:
        """Set which tokens may come next in some rows; it counts in those that have a grammar.

        Args:
            rows_R: int64, on the device of the state.
            words_RX: int32; token t is bit t % 32 of word t // 32.
        """
        self.allowed_BX.index_copy_(0, rows_R, words_RX)

    def note(self, token_B: Tensor, positions_B: Tensor, emits_B: Tensor) -> None:
        """Add each emitting row's new token, which stands at `positions_B`, to what it knows.

        Capture:
            Safe.
        """
        beside = self.history_BW.shape[1] - 1
        at_B1 = positions_B.masked_fill(~emits_B, beside).clamp(max=beside)[:, None]
        self.history_BW.scatter_(1, at_B1, token_B[:, None].int())
        self.counts_BV.scatter_add_(1, token_B[:, None], emits_B[:, None].int())
        self.whole_BF[:, PRODUCED].add_(emits_B)

    def first(self, rows: int, width: int) -> SamplingState:
        """Return the same memory, of the first `rows` rows, to look at `width` tokens each."""
        return SamplingState(
            self.whole_BF[:rows],
            self.real_BF[:rows],
            self.history_BW[:rows],
            self.counts_BV[:rows],
            self.allowed_BX[:rows],
            width,
        )

    def pick(self, rows: Tensor, *, keeps_history: bool = True) -> SamplingState:
        """Return copies of some rows.

        Args:
            keeps_history: What only `Level.FULL` reads, and nearly all of the memory, too; if not,
                other rows' stands in its place.
        """
        history_BW, counts_BV, allowed_BX = (
            each.index_select(0, rows) if keeps_history else each[: len(rows)]
            for each in (self.history_BW, self.counts_BV, self.allowed_BX)
        )
        return SamplingState(
            self.whole_BF.index_select(0, rows),
            self.real_BF.index_select(0, rows),
            history_BW,
            counts_BV,
            allowed_BX,
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
        return self.whole_BF[:, STREAM]

    @property
    def top_k(self) -> Tensor:
        """Tokens to draw from, (B,); 0 is off."""
        return self.whole_BF[:, TOP_K]

    @property
    def min_tokens(self) -> Tensor:
        """New tokens before which no stop id is drawn, (B,)."""
        return self.whole_BF[:, _MIN_TOKENS]

    @property
    def produced(self) -> Tensor:
        """New tokens so far, (B,)."""
        return self.whole_BF[:, PRODUCED]

    @property
    def is_bound(self) -> Tensor:
        """Whether a grammar says what may come, (B,): 1 or 0."""
        return self.whole_BF[:, BOUND]

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
        return self.real_BF[:, TEMPERATURE]

    @property
    def top_p(self) -> Tensor:
        """Mass to draw from, (B,)."""
        return self.real_BF[:, TOP_P]

    @property
    def min_p(self) -> Tensor:
        """Least share of the likeliest token's probability, (B,)."""
        return self.real_BF[:, MIN_P]

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


def check_vocabulary(vocabulary: int) -> None:
    """Refuse a vocabulary whose odds could not be summed exactly.

    Raises:
        UsageError: OST5022.
    """
    if vocabulary > MOST_VOCABULARY:
        raise UsageError(
            f"the vocabulary has {vocabulary} tokens, sampling takes {MOST_VOCABULARY}",
            code="OST5022",
            remedy="use a model with a smaller vocabulary",
        )


def row_bytes(vocabulary: int, tokens: int) -> int:
    """Return what one row takes that may know so many tokens."""
    words = tokens + 1 + vocabulary + words_for(vocabulary)
    return 8 * _BIASED.stop + 4 * (_BIASES.stop + words)


def words_for(vocabulary: int) -> int:
    """Return how many 32-bit words hold one bit per token."""
    return -(-vocabulary // 32)


def _check_room(what: str, given: int, room: int) -> None:
    if given > room:
        raise UsageError(
            f"a request has {given} {what}, a row holds {room}",
            code="OST5020",
            remedy=f"give at most {room} {what}",
        )
