"""The two callables that are recorded: the prefill of a prompt, and one decode step.

Both are modules, so that the parameters they read are found and watched. Both leave their result in
the decode state, so that nothing has to be copied out of a recording; and the decode step takes no
argument at all, so that a replay has nothing to sign or to fill.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ostinato.graphs.inline import runs_inline
from ostinato.hf.forward import ForwardCall
from ostinato.hf.fusing import FusedRun, Fusion, compiled_part, settle
from ostinato.hf.masks import MaskRule
from ostinato.hf.plan import Plan
from ostinato.hf.sampling import emit
from ostinato.hf.state import DecodeState


@dataclass(frozen=True, slots=True)
class Parts:
    """What a step is made of: the model, how to call and mask it, its state, and what to do."""

    model: nn.Module
    call: ForwardCall
    rule: MaskRule
    state: DecodeState
    plan: Plan


class PrefillStep(nn.Module):
    """Run a whole prompt, padded on the right to its bucket, and produce the first token."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.model = parts.model
        self._parts = parts
        self.training = parts.model.training

    def forward(self, ids_BQ: Tensor, positions_BQ: Tensor, valid_BQ: Tensor | None) -> None:
        """Fill the cache and produce the first token.

        Args:
            ids_BQ: Prompt ids; the padding may hold any id.
            positions_BQ: Position of each token.
            valid_BQ: False at padding on the left; None when there is none, which lets attention
                take its causal fast path (the padding on the right is behind every real query).

        Capture:
            Safe.
        """
        logits_BV = self.logits(ids_BQ, positions_BQ, valid_BQ)
        emit(self._parts.state, logits_BV, self._parts.plan, is_first=True)

    def logits(self, ids_BQ: Tensor, positions_BQ: Tensor, valid_BQ: Tensor | None) -> Tensor:
        """Fill the cache and return the logits (B, V) after the prompt's last token."""
        state = self._parts.state
        mask = None if valid_BQ is None else self._parts.rule.prefill(valid_BQ, state.like)
        with state.cache.prefilling():
            logits = self._parts.call(
                self.model,
                ids_BQ,
                mask=mask,
                positions=positions_BQ,
                cache=state.cache,
                columns=state.columns_L[: ids_BQ.shape[1]],
                keep=state.last,
            )
        state.positions_B1.copy_(positions_BQ.index_select(1, state.last) + 1)
        return logits[:, 0]


class DecodeStep(nn.Module):
    """Run one token of every row: embed, attend, score, choose, append, advance.

    Attributes:
        fusion: What is fused while it is recorded; None before `fuse`.
    """

    fusion: Fusion | None

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.model = parts.model
        self._parts = parts
        self.training = parts.model.training
        self.fusion = None

    def fuse(self) -> None:
        """Find out what can be fused; the state stays as it is, the column's keys excepted."""
        compiled = compiled_part(self.model)
        if compiled is not None:
            why = (
                f"{compiled} is compiled, and the compiler stands back where calls are listened to"
            )
            self.fusion = Fusion(None, {"all": why})
            return
        mask = self._mask()
        device = self._parts.state.device
        self.fusion = settle(lambda: self._model(mask), device)

    def forward(self) -> None:
        """Produce one token per row from the state, and leave the state one step further.

        Capture:
            Safe. Everything that changes from step to step is read on the device.
        """
        emit(self._parts.state, self.logits(), self._parts.plan, is_first=False)

    def logits(self) -> Tensor:
        """Cache the tokens that stand in the state, move on, and return what follows, (B, V)."""
        state = self._parts.state
        mask = self._mask()
        with self._fused():
            logits = self._model(mask)
        state.positions_B1.add_(1)
        state.column.add_(1)
        return logits[:, -1]

    def _mask(self) -> Any:
        state = self._parts.state
        return self._parts.rule.decode(state.columns_L, state.column, state.valid_BL, state.like)

    def _model(self, mask: Any) -> Tensor:
        state = self._parts.state
        return self._parts.call(
            self.model,
            state.tokens_B1,
            mask=mask,
            positions=state.positions_B1,
            cache=state.cache,
            columns=state.column,
        )

    def _fused(self) -> AbstractContextManager[object]:
        """Fuse a run that is recorded. An answer that is computed eagerly is the plain step's."""
        plan = None if self.fusion is None else self.fusion.plan
        return FusedRun(plan) if plan is not None and runs_inline() else nullcontext()
