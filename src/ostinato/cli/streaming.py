"""Words and bars as they come: the text of an answer on stdout, progress on stderr.

Only what a later token cannot change is written. Bars are drawn for a person at a terminal alone;
a pipe or a log gets none.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ostinato.checkpoints import Detokenizer


def prepare_stdout() -> None:
    """Make stdout take any text: in a locale without the characters, and when it is closed."""
    if sys.stdout is None:
        # Holds descriptor 1 too, so that no file opened later is taken for stdout.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until exit
    elif hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


class TokenStream:
    """A streamer for `generate`: counts new tokens and passes their text on as it becomes certain.

    transformers calls `put` first with the prompt and then with each new token, and `end` last.
    """

    def __init__(
        self,
        detokenizer: Detokenizer | None = None,
        write: Callable[[str], None] | None = None,
        counted: Callable[[int], None] | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._write = write
        self._counted = counted
        self._is_prompt = True

    def put(self, value: Any) -> None:
        """Take the prompt, or the next tokens (a tensor on the host)."""
        if self._is_prompt:
            self._is_prompt = False
            return
        ids = value.reshape(-1).tolist()
        if self._counted is not None:
            self._counted(len(ids))
        if self._detokenizer is not None and self._write is not None:
            self._write(self._detokenizer.push(ids))

    def end(self) -> None:
        """Write what was held back."""
        if self._detokenizer is not None and self._write is not None:
            self._write(self._detokenizer.finish())


def write_now(text: str) -> None:
    """Write `text` to stdout at once; a reader that has gone ends the program (BrokenPipeError)."""
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def bar() -> Iterator[Callable[[str, float], None]]:
    """Show one bar on stderr while the block runs; yield what tells it how far the work is."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=1.0)

        def tell(what: str, fraction: float) -> None:
            progress.update(task, description=what, completed=fraction)

        yield tell
