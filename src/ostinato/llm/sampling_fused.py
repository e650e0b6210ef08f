"""From hidden states to each row's next token in two or three kernels, where Triton has a GPU.

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

from ostinato.llm.attention.base import DecodeAttend
from ostinato.llm.sampling import Level
from ostinato.llm.sampling_logprobs import logprobs
from ostinato.llm.sampling_penalties import adjust

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.attention.base import AttentionBackend
    from ostinato.llm.kernels.few_head import FewHeadPlan
    from ostinato.llm.kernels.head_tiles import HeadPlan, Leaders
    from ostinato.llm.kernels.tiled_rows import Weighed
    from ostinato.llm.kv.store import KvStore
    from ostinato.llm.models.decoder import Decoder
    from ostinato.llm.models.fused import Fused, Unnormed
    from ostinato.llm.resident_state import ResidentState

FUSED_LEVELS = (Level.GREEDY, Level.CUT, Level.FULL)
"""What fused steps are recorded for: to a row that filters nothing, `Level.CUT` costs next to
nothing."""
_OLDEST = (8, 0)
_LEAST_ROWS = 16
# Rows up to which the head is quicker by tiles. One H200, bf16, 2026-11-30, us: with 32 rows of
# Llama-3-8B 239 by tiles and 263 by cuBLAS, with 256 rows 495 and 446.
_MOST_ROWS = 64
_SHORT = 1024
"""Hidden numbers of a short row of the head."""


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

    def hidden(
        self, state: ResidentState, attention: AttentionBackend, store: KvStore
    ) -> Tensor | Unnormed:
        """Run the layers for one new token of each row; fused ones stand the rows up themselves.

        Capture:
            Safe, if the attention backend is.
        """
        from ostinato.llm.kernels.standing import Standing, stand

        layers: Fused | None = getattr(self.decoder, "fused", None)
        if layers is not None:
            standing = Standing.of(state, store.page_tokens)
            attend = DecodeAttend(attention, store, state.pages_BP, standing.lengths_B)
            return layers.step(standing, attend)
        lengths_B, slots_B = stand(state, store.page_tokens)
        attend = DecodeAttend(attention, store, state.pages_BP, lengths_B)
        return self.decoder.decode(state.token, state.position, slots_B, attend)

    def take(
        self,
        hidden: Tensor | Unnormed,
        state: ResidentState,
        level: Level,
        most_logprobs: int | None,
    ) -> None:
        """Choose each running row's token, and move the row on by it; see `resident_step.advance`.

        Args:
            hidden: The hidden states (B, E) after the last norm, or ahead of it.

        Capture:
            Safe.
        """
        from ostinato.llm.kernels.head_tiles import logit_tiles
        from ostinato.llm.kernels.settling import settle
        from ostinato.llm.kernels.telling import tell_writes
        from ostinato.llm.kernels.weighing import weigh

        draws, keeps = level is not Level.GREEDY, level is Level.FULL
        logits_BV: Tensor | None = None
        seen_BV: Tensor | None
        rows = len(state.place_BF)
        if self._is_written(rows) or keeps or most_logprobs is not None:
            logits_BV = seen_BV = self.decoder.logits(_normed(hidden))
            if keeps:
                seen_BV = _changed(logits_BV, state)
            leaders = logit_tiles(seen_BV, state, draws=draws)
        else:
            leaders, seen_BV = self._lead(hidden, state, draws=draws)
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

    def _lead(
        self, hidden: Tensor | Unnormed, state: ResidentState, *, draws: bool
    ) -> tuple[Leaders, Tensor | None]:
        """Return who leads, and the logits of the rows that need them."""
        from ostinato.llm.kernels.few_head import few_head
        from ostinato.llm.kernels.head_tiles import head_tiles

        assert self.head_VE is not None
        rows, head_VE, early = len(state.place_BF), self.head_VE, self.is_early
        residual = None if isinstance(hidden, torch.Tensor) else hidden.residual
        if rows == 1 and not draws and residual is not None:
            x_1E, norm = residual
            return few_head(x_1E, norm, head_VE, plan=few_head_plan(head_VE), is_early=early), None
        plan = head_plan(rows, head_VE, draws=draws)
        tokens = (_weighed(hidden) if plan.norms else None) or _normed(hidden)
        return head_tiles(tokens, head_VE, state, plan=plan, draws=draws, is_early=early)

    def _is_written(self, rows: int) -> bool:
        """Return whether a step of so many rows writes its logits in any case."""
        return self.head_VE is None or rows > _MOST_ROWS


def _normed(hidden: Tensor | Unnormed) -> Tensor:
    return hidden if isinstance(hidden, torch.Tensor) else hidden.normed()


def _weighed(hidden: Tensor | Unnormed) -> Weighed | None:
    return None if isinstance(hidden, torch.Tensor) else hidden.weighed


def few_head_plan(head_VE: Tensor) -> FewHeadPlan:
    """Return how the head's product is cut for one row."""
    from ostinato.llm.kernels.few_head import FewHeadPlan

    hidden = head_VE.shape[1]
    processors = _processors(head_VE.device)
    if hidden <= _SHORT:
        return FewHeadPlan(16, 64, 2, 4 * processors, is_spread=True)
    outputs = 8 if hidden <= 2 * _SHORT else 4
    return FewHeadPlan(outputs, 2 * _SHORT, 8, 2 * processors)


def _processors(device: torch.device) -> int:
    if device.type != "cuda":  # the interpreter runs programs one by one
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def head_plan(rows: int, head_VE: Tensor, *, draws: bool) -> HeadPlan:
    """Return how the head's product is cut for so many rows.

    The noise of a draw wants the registers that a piece ahead of the wait would lie in, and with
    many rows those of their norms too.
    """
    from ostinato.llm.kernels.head_tiles import HeadPlan

    width = max(1 << (rows - 1).bit_length(), _LEAST_ROWS)
    hidden = head_VE.shape[1]
    depths = (64, 32) if head_VE.dtype == torch.float32 else (128, 64, 32)
    return HeadPlan(
        rows=width,
        depth=next((each for each in depths if hidden % each == 0), depths[-1]),
        warps=4 if width <= (16 if draws else 32) else 8,
        stages=3 if width > 32 else 4,
        ahead=0 if draws else 1,
        norms=not draws or width <= 32,
    )


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
