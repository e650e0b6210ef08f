"""From hidden states to each row's next token in three kernels, where Triton has a GPU.

`sampling.sample` and `resident_step.advance` say what is right; this gives the same tokens, state
and endings. The logits of a step are written only where somebody must look at them twice: of rows
with top-k, top-p or min-p, where what changes logits comes before (`Level.FULL`), where log
probabilities are reported, where a decoder makes its logits in its own way, and where there are so
many rows that the library's product is quicker, the reading included.

Shapes: B rows, V vocabulary, E hidden.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ostinato.llm.sampling import Level
from ostinato.llm.sampling_logprobs import logprobs
from ostinato.llm.sampling_penalties import adjust

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.kernels.head_tiles import HeadPlan
    from ostinato.llm.models.decoder import Decoder
    from ostinato.llm.resident_state import ResidentState

FUSED_LEVELS = (Level.GREEDY, Level.CUT, Level.FULL)
"""What fused steps are recorded for: to a row that filters nothing, `Level.CUT` costs next to
nothing."""
_OLDEST = (8, 0)
_LEAST_ROWS = 16
# Rows up to which the head is quicker by tiles. One H200, bf16, 2026-11-30, us: with 32 rows of
# Llama-3-8B 239 by tiles and 263 by cuBLAS, with 256 rows 495 and 446.
_MOST_ROWS = 64


def can_fuse(device: torch.device) -> bool:
    """Return whether the kernels can be compiled for a device."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= _OLDEST
    )


@dataclass(frozen=True, slots=True)
class FusedEnd:
    """The end of a decode step.

    Attributes:
        head_VE: The head, where logits are its plain product and may be computed by tiles; None:
            the decoder makes them.
        is_early: Whether kernels begin before the one ahead has ended.
    """

    decoder: Decoder
    head_VE: Tensor | None
    is_early: bool

    @classmethod
    def of(cls, decoder: Decoder, device: torch.device) -> FusedEnd:
        """Make the end that serves a decoder."""
        from ostinato.llm.kernels.early import can_begin_early

        return cls(decoder, _plain_head(decoder), can_begin_early(device))

    def stand(self, state: ResidentState, page_tokens: int) -> tuple[Tensor, Tensor]:
        """Return each row's length with its new token, 0 where it rests, and that token's slot.

        Capture:
            Safe.
        """
        from ostinato.llm.kernels.standing import stand

        return stand(state, page_tokens)

    def take(
        self, hidden_BE: Tensor, state: ResidentState, level: Level, most_logprobs: int | None
    ) -> None:
        """Choose each running row's token, and move the row on by it; see `resident_step.advance`.

        Capture:
            Safe.
        """
        from ostinato.llm.kernels.head_tiles import head_tiles, logit_tiles
        from ostinato.llm.kernels.settling import settle
        from ostinato.llm.kernels.telling import tell_writes
        from ostinato.llm.kernels.weighing import weigh

        draws, keeps = level is not Level.GREEDY, level is Level.FULL
        logits_BV: Tensor | None = None
        seen_BV: Tensor | None
        if self._is_written(len(hidden_BE)) or keeps or most_logprobs is not None:
            logits_BV = seen_BV = self.decoder.logits(hidden_BE)
            if keeps:
                seen_BV = _changed(logits_BV, state)
            leaders = logit_tiles(seen_BV, state, draws=draws)
        else:
            assert self.head_VE is not None
            plan = head_plan(len(hidden_BE), self.head_VE)
            leaders, seen_BV = head_tiles(
                hidden_BE, self.head_VE, state, plan=plan, draws=draws, is_early=self.is_early
            )
        weighed = None
        if draws:
            assert seen_BV is not None
            weighed = weigh(seen_BV, leaders, state)
        tell_writes(_written(state, keeps_history=keeps))
        token_B, place_B = settle(
            leaders,
            state,
            logits_BV=seen_BV if draws else None,
            weighed=weighed,
            keeps_history=keeps,
            is_early=self.is_early and not draws,
        )
        if most_logprobs is not None:
            assert state.logprobs is not None
            assert logits_BV is not None
            state.logprobs.note(place_B, logprobs(logits_BV, token_B, most_logprobs))

    def _is_written(self, rows: int) -> bool:
        """Return whether a step of so many rows writes its logits in any case."""
        return self.head_VE is None or rows > _MOST_ROWS


def head_plan(rows: int, head_VE: Tensor) -> HeadPlan:
    """Return how the head's product is cut for so many rows."""
    from ostinato.llm.kernels.head_tiles import HeadPlan

    width = max(1 << (rows - 1).bit_length(), _LEAST_ROWS)
    hidden = head_VE.shape[1]
    depths = (64, 32) if head_VE.dtype == torch.float32 else (128, 64, 32)
    depth = next((each for each in depths if hidden % each == 0), depths[-1])
    stages = 3 if width > 32 else 4
    return HeadPlan(rows=width, depth=depth, warps=4 if width <= 32 else 8, stages=stages)


def _plain_head(decoder: Decoder) -> Tensor | None:
    from ostinato.llm.models.decoder import Decoder

    # One that promises the same bits in any company keeps the one product that gives them.
    makes_its_own = getattr(type(decoder), "logits", None) is not Decoder.logits
    if makes_its_own or decoder.is_invariant:
        return None
    return decoder.head()


def _changed(logits_BV: Tensor, state: ResidentState) -> Tensor:
    from ostinato.llm.kernels.barring import barred

    changed_BV = barred(logits_BV, state.sampling)
    adjust(changed_BV, state.sampling, state.position + 1)
    return changed_BV


def _written(state: ResidentState, *, keeps_history: bool) -> list[Tensor]:
    sampling = state.sampling
    kept = [sampling.whole_BF, sampling.history_BW, sampling.counts_BV] if keeps_history else []
    return [state.place_BF, state.output_BF, *kept]
