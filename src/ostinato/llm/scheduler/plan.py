"""What the engine is told to do next, and the note the scheduler keeps of having said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ostinato.llm.scheduler.progress import Progress


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of one request's tokens to prefill.

    Attributes:
        request_id: Whose tokens.
        start: Position of the first of them; those before it have their keys and values.
        count: How many, at least 1.
        is_last: The request decodes in this same plan.
    """

    request_id: str
    start: int
    count: int
    is_last: bool


class Stretch(NamedTuple):
    """Tokens to prefill, from `start` on, into `pages`; it stays as it is while others go on."""

    token_ids: Sequence[int]
    start: int
    pages: Sequence[int]


class Seat(NamedTuple):
    """Where a request sits down, and with what.

    Attributes:
        ids: Prompt and answer so far.
        left: Tokens it may still produce.
    """

    row: int
    ids: tuple[int, ...]
    left: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One step of the engine, to be done in the order of the fields.

    A request is prefilled up to its last known token, which is not prefilled: it is the first
    input of the request's first decode step. So tokens come out of decode launches alone, and a
    request that is prefilled again after a preemption goes the same way.

    Attributes:
        preempted: Take these out of their rows; they wait again and will be prefilled again.
        prefill: Chunks to prefill, at most `Limits.prefill_tokens` tokens together.
        joining: Put these in their rows: they decode for the first time since their admission.
        grown: Rows of `decode` that have been running and now have more pages than before, none of
            `joining` among them.
        decode: Rows that run in the launch, first rank first.
        steps: Decode steps of the launch, 0 if nothing decodes. Every row of `decode` has the
            pages for them, or for as many as its budget leaves.
        single: Those of `decode` that run one step only, for their grammar needs each token.
    """

    preempted: tuple[str, ...] = ()
    prefill: tuple[Chunk, ...] = ()
    joining: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()
    steps: int = 0
    single: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be launched; such a plan has no `advance`."""
        return not self.prefill and not self.decode


@dataclass(frozen=True, slots=True)
class Note:
    """What a launched plan has under way, by request and not by name: a name can be used again.

    Attributes:
        decode: The rows of the launch.
        steps: Its steps. No more tokens may come of a row than it runs of them.
    """

    prefill: tuple[PrefillNote, ...]
    decode: tuple[Progress, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class PrefillNote:
    """A chunk under way, `end` tokens being written after it, for the stay that `stay` counts."""

    progress: Progress
    stay: int
    end: int
