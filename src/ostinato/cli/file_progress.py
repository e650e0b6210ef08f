"""How far the answers to a file are: a bar for a person, a line now and then for a log.

Answers are written in the order of their prompts, so for long none may be written although many
are at work; what moves meanwhile is their tokens. Everything is said on stderr, never on stdout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic

import typer
from rich.console import Console

from ostinato.cli.streaming import bar

_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is.

    Attributes:
        lines: Prompts of the file.
        answered: Those whose answer is written, an earlier run's included.
        tokens: New ones of this run, of written answers and of those at work.
        coming: Those of them that belong to prompts not answered yet.
        most_coming: How many those prompts may get at most.
        running: Answers at work.
        waiting: Answers and prompts whose turn has not come.
        seconds: Since the first prompt was asked.
    """

    lines: int
    answered: int
    tokens: int
    coming: int
    most_coming: int
    running: int
    waiting: int
    seconds: float

    @property
    def fraction(self) -> float:
        """The share of the work that is done, 0 to 1; answers may be shorter than they may be."""
        begun = min(1.0, self.coming / max(1, self.most_coming))
        return (self.answered + (self.lines - self.answered) * begun) / self.lines

    @property
    def words(self) -> str:
        """One line for people."""
        rate = self.tokens / self.seconds if self.seconds > 0 else 0.0
        return (
            f"{self.answered} of {self.lines} answered, {self.tokens} tokens ({rate:.1f}/s), "
            f"{self.running} running, {self.waiting} waiting"
        )


@contextmanager
def showing(clock: Callable[[], float] = monotonic) -> Iterator[Callable[[Standing], None]]:
    """Show how a run goes on while the block runs; yield what is told how far it is.

    At a terminal each word of it is shown. Elsewhere, such as in a log, a line is written when
    `_EVERY_S` have passed since the last one.
    """
    if Console(stderr=True).is_terminal:
        with bar() as tell:
            yield lambda standing: tell(standing.words, standing.fraction)
        return
    said_s = clock()

    def say(standing: Standing) -> None:
        nonlocal said_s
        if clock() - said_s >= _EVERY_S:
            said_s = clock()
            with suppress(OSError):  # nobody reads it any more: no reason to give the work up
                typer.echo(standing.words, err=True)

    yield say
