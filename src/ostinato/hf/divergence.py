"""Where two generations of the same prompt part, and how close the call was.

A static cache and a growing one add the same numbers in another order. In bf16 that can flip a
token whose rival is nearly as good; the gap between the two logits tells a flip from a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token in which two results differ.

    Attributes:
        row: Row of the batch.
        column: Column of the sequence.
        ours: Token of the first result; None where it had ended.
        theirs: Token of the second.
        logit_gap: By how much a plain forward of the model prefers `theirs` over `ours`; negative
            when it prefers ours, None when one had ended.
        spread: Standard deviation of that forward's logits, to judge the gap by.
    """

    row: int
    column: int
    ours: int | None
    theirs: int | None
    logit_gap: float | None
    spread: float | None

    def __str__(self) -> str:
        place = f"row {self.row}, column {self.column}: {self.ours} or {self.theirs}"
        if self.logit_gap is None or self.spread is None:
            return f"{place}; one had ended"
        return f"{place}; logits {self.logit_gap:+.3g} apart, where they spread {self.spread:.3g}"


def first_divergence(
    model: Any, ours: Tensor, theirs: Tensor, *, attention_mask: Tensor | None = None
) -> Divergence | None:
    """Return the first difference of two `generate` results of one prompt, or None.

    Args:
        model: The model; it runs once, over the tokens before the difference.
        ours: (rows, columns), prompt included.
        theirs: The same for the other result; it may be shorter or longer.
        attention_mask: The prompt's, where it has padding.
    """
    ours, theirs = ours.cpu(), theirs.cpu()
    common = min(ours.shape[1], theirs.shape[1])
    differs = (ours[:, :common] != theirs[:, :common]).nonzero()
    if len(differs) == 0:
        if ours.shape[1] == theirs.shape[1]:
            return None
        token_ours, token_theirs = (_token(each, 0, common) for each in (ours, theirs))
        return Divergence(0, common, token_ours, token_theirs, None, None)
    row, column = min(differs.tolist(), key=lambda place: (place[1], place[0]))
    logits = _logits_before(model, ours[row, :column], row, attention_mask)
    mine, other = int(ours[row, column]), int(theirs[row, column])
    gap = float(logits[other] - logits[mine])
    return Divergence(row, column, mine, other, gap, float(logits.std()))


def _token(tokens: Tensor, row: int, column: int) -> int | None:
    return int(tokens[row, column]) if column < tokens.shape[1] else None


def _logits_before(model: Any, ids: Tensor, row: int, mask: Tensor | None) -> Tensor:
    if mask is not None:
        # Without its padding on the left, a row needs no mask.
        ids = ids[int((mask[row] == 0).sum()) :]
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids[None].to(model.device), use_cache=False).logits
    return logits[0, -1].float().cpu()
