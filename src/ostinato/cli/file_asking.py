"""The prompts of a file put to an engine, as many at work as fit, answered in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from ostinato.cli.file_progress import Standing
from ostinato.errors import OstinatoError
from ostinato.llm.refusals import QueueFull

if TYPE_CHECKING:
    from ostinato.cli.prompt_file import PromptLine
    from ostinato.llm import Engine
    from ostinato.llm.answers import Output
    from ostinato.llm.stream import Stream

    Answer = tuple[PromptLine, Output | OstinatoError]


class Asking:
    """Asks the lines that an earlier run has left.

    Args:
        left: What is to be asked.
        before: How many lines are answered already.
        ask: Submits one line.
        told: Called while answers are waited for.
        every_s: Not more often than so, for to know how far the answers are takes a look at each.
    """

    def __init__(
        self,
        engine: Engine,
        left: Sequence[PromptLine],
        before: int,
        *,
        ask: Callable[[PromptLine], Stream],
        told: Callable[[Standing], None],
        every_s: float = 0.5,
    ) -> None:
        self._engine, self._ask, self._told, self._every_s = engine, ask, told, every_s
        self._left = deque(left)
        self._lines, self._answered = before + len(left), before
        self._asked: deque[tuple[PromptLine, Stream | OstinatoError]] = deque()
        self._tokens = 0
        self._most_coming = sum(line.params.max_tokens * line.params.n for line in left)
        self._began_s = self._told_s = monotonic()

    def answers(self) -> Iterator[Answer]:
        """Yield each line with its answer, or with why it was refused."""
        try:
            while self._left or self._asked:
                if not self._left or not self._try_ask():
                    yield self._oldest()
        finally:  # an error, or Ctrl-C
            for _, came in self._asked:
                if not isinstance(came, OstinatoError):
                    came.cancel()

    def _try_ask(self) -> bool:
        """Ask the next line; False if it must wait until there is room."""
        line = self._left[0]
        came: Stream | OstinatoError
        try:
            came = self._ask(line)
        except QueueFull as full:
            if self._asked:
                return False
            came = full
        except OstinatoError as refused:
            came = refused
        self._asked.append((self._left.popleft(), came))
        return True

    def _oldest(self) -> Answer:
        line, came = self._asked[0]
        output = came if isinstance(came, OstinatoError) else self._wait(came)
        self._asked.popleft()
        self._answered += 1
        self._most_coming -= line.params.max_tokens * line.params.n
        if not isinstance(output, OstinatoError):
            self._tokens += sum(len(choice.token_ids) for choice in output.choices)
        self._tell()
        return line, output

    def _wait(self, stream: Stream) -> Output:
        while True:
            try:
                return stream.result(self._every_s)
            except TimeoutError:
                self._tell()

    def _tell(self) -> None:
        if monotonic() - self._told_s >= self._every_s:
            self._told(self._standing())
            self._told_s = monotonic()

    def _standing(self) -> Standing:
        coming = sum(came.new_tokens for _, came in self._asked if not isinstance(came, Exception))
        counts = self._engine.counts().scheduler
        return Standing(
            lines=self._lines,
            answered=self._answered,
            tokens=self._tokens + coming,
            coming=coming,
            most_coming=self._most_coming,
            running=counts.running,
            waiting=counts.waiting + len(self._left),
            seconds=monotonic() - self._began_s,
        )
