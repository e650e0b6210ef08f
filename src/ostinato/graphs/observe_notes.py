"""The notes that watchers take during an observed run."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.graphs.observe_draws import OF_STATES
from ostinato.graphs.reasons import Reason
from ostinato.graphs.source_lines import line_in_torch, running_line

_OF_VALUES = frozenset({Reason.HOST_SYNC, Reason.HOST_COPY, Reason.DATA_DEPENDENT_SHAPE})
"""What a function of torch may do deep inside, where the line that calls it does not show it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a run cannot be recorded.

    Attributes:
        op: The call that does it, such as "aten.nonzero.default" or "Tensor.tolist".
        where: The user's line, such as "model.py:88 `mask.any().item()`"; None if there is none.
        detail: One plain sentence.
    """

    reason: Reason
    op: str
    where: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class Escape:
    """A tensor made by a run that outlives it without being part of the result.

    Typically an activation stored on a module: a replay refreshes it until somebody rebinds it.
    """

    op: str
    where: str | None


class Notes:
    """Refusals in the order seen."""

    __slots__ = ("refusals",)

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def refuse(self, reason: Reason, op: str, detail: str) -> None:
        """Note that the user's line now running cannot be recorded."""
        inner = line_in_torch() if reason in _OF_VALUES else None
        if inner is not None:
            detail = f"{detail}, in {inner}"
        self.refusals.append(Refusal(reason, op, running_line(), detail))

    def refuse_generator(self, op: str, detail: str, *, has_line: bool = True) -> None:
        """Note what is done with a random generator, once: the first line says it best."""
        if not any(refusal.detail in OF_STATES for refusal in self.refusals):
            where = running_line() if has_line else None
            self.refusals.append(Refusal(Reason.PYTHON_SIDE_EFFECT, op, where, detail))
