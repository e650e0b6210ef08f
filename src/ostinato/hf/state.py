"""The decode state of one batch: every number that a step reads or advances, on the device.

A step takes no argument that changes from token to token: the column, the positions, the finished
flags and the tokens themselves live in these tensors, so that one recording serves every step.

Shapes: B rows, L cache columns, V vocabulary, E room for end-of-sequence ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.hf.cache import LayerShape, ResidentCache
from ostinato.hf.plan import Sampling

EOS_ROOM = 16
"""End-of-sequence ids that fit; unused places hold -1, which is no token."""

_PENALTY, _TEMPERATURE, _TAIL, _MIN_P = range(4)


@dataclass(frozen=True, slots=True)
class Progress:
    """What the host learns when it looks.

    Attributes:
        width: Tokens produced until the last row finished, or so far.
        produced: Tokens produced, surplus ones included.
        is_done: Every row has finished.
    """

    width: int
    produced: int
    is_done: bool


class DecodeState:
    """All tensors of one batch of `rows`, with room for `length` columns.

    Attributes:
        column: (1,) where the next key goes.
        produced: (1,) tokens produced, surplus ones included.
        width: (1,) tokens produced while a row was unfinished.
        last: (1,) column of the prompt's last token.
        min_new: (1,) tokens before which the ids in `held_off_V` are barred.
        pad: (1,) what a finished row produces.
        tokens_B1, positions_B1: The next input.
        finished_B: Rows that have produced an end-of-sequence id.
        new_tokens_BL: What was produced.
        valid_BL: Columns that are not the padding of a prompt.
    """

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        *,
        rows: int,
        length: int,
        vocabulary: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.rows, self.length, self.device = rows, length, device

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        def flags(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.bool, device=device)

        self.column, self.produced, self.width = whole(1), whole(1), whole(1)
        self.last, self.min_new, self.pad = whole(1), whole(1), whole(1)
        self.tokens_B1, self.positions_B1 = whole(rows, 1), whole(rows, 1)
        self.new_tokens_BL, self.eos_E = whole(rows, length), whole(EOS_ROOM)
        self.finished_B, self.valid_BL = flags(rows), flags(rows, length)
        self.held_off_V, self.suppressed_V = flags(vocabulary), flags(vocabulary)
        self.suppressed_first_V, self.seen_BV = flags(vocabulary), flags(rows, vocabulary)
        self.numbers = torch.ones(4, dtype=torch.float32, device=device)
        self.columns_L = torch.arange(length, device=device)
        self.like = torch.zeros((), dtype=dtype, device=device)
        self.cache = ResidentCache(shapes, rows, length, self.column)

    @property
    def penalty(self) -> Tensor:
        """The repetition penalty, (1,)."""
        return self.numbers[_PENALTY : _PENALTY + 1]

    @property
    def temperature(self) -> Tensor:
        """The temperature, (1,)."""
        return self.numbers[_TEMPERATURE : _TEMPERATURE + 1]

    @property
    def tail(self) -> Tensor:
        """The mass that top-p cuts off, (1,)."""
        return self.numbers[_TAIL : _TAIL + 1]

    @property
    def min_p(self) -> Tensor:
        """The share of the best probability below which min-p cuts, (1,)."""
        return self.numbers[_MIN_P : _MIN_P + 1]

    def begin(self, ids_BP: Tensor, valid_BP: Tensor, sampling: Sampling, pad: int) -> None:
        """Set everything for a new prompt of P columns; runs on the host's word, never recorded."""
        prompt = ids_BP.shape[1]
        self.cache.clear()
        self.column.fill_(prompt)
        self.last.fill_(prompt - 1)
        self.min_new.fill_(sampling.min_new_tokens)
        self.pad.fill_(pad)
        torch._foreach_zero_([self.produced, self.width])
        self.finished_B.zero_()
        self.valid_BL.fill_(True)
        self.valid_BL[:, :prompt].copy_(valid_BP)
        padded = (*sampling.eos, *(-1,) * (EOS_ROOM - len(sampling.eos)))
        self.eos_E.copy_(torch.tensor(padded, device="cpu"))
        # 1 - top_p in double precision first, as transformers has it.
        numbers = (sampling.penalty, sampling.temperature, 1 - sampling.top_p, sampling.min_p)
        self.numbers.copy_(torch.tensor(numbers, dtype=torch.float32, device="cpu"))
        self._bar(sampling)
        if sampling.plan.penalises:
            self._remember(ids_BP, valid_BP, counts_padding=sampling.counts_padding)

    def _bar(self, sampling: Sampling) -> None:
        plan = sampling.plan
        for wanted, flags_V, ids in (
            (plan.holds_off_eos, self.held_off_V, sampling.held_off),
            (plan.suppresses, self.suppressed_V, sampling.suppressed),
            (plan.suppresses_first, self.suppressed_first_V, sampling.suppressed_first),
        ):
            if wanted:
                flags_V.zero_()
                inside = [each for each in ids if 0 <= each < flags_V.shape[0]]
                flags_V[torch.tensor(inside, dtype=torch.long, device=self.device)] = True

    def _remember(self, ids_BP: Tensor, valid_BP: Tensor, *, counts_padding: bool) -> None:
        vocabulary = self.seen_BV.shape[1]
        seen = torch.zeros((self.rows, vocabulary + 1), dtype=torch.bool, device=self.device)
        counted = ids_BP.clamp(max=vocabulary)
        if not counts_padding:
            # Only the padding on the left is left out.
            started = valid_BP.to(torch.int32).cummax(dim=1).values.to(torch.bool)
            counted = counted.masked_fill(~started, vocabulary)
        seen.scatter_(1, counted, True)
        self.seen_BV.copy_(seen[:, :vocabulary])

    def look(self) -> Progress:
        """Read where the batch stands: the one wait of the host for the device."""
        unfinished = (~self.finished_B).sum().reshape(1)
        width, produced, alive = torch.cat((self.width, self.produced, unfinished)).tolist()
        return Progress(width, produced, alive == 0)
