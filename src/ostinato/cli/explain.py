"""`ostinato explain [WORD]`: print the page of a reason or an error code, or list them all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.streaming import prepare_stdout
from ostinato.errors import UsageError
from ostinato.explain import find, findings, is_generated, pages


def explain(
    word: Annotated[
        str | None, typer.Argument(help="A reason such as host-sync, or a code such as OST1001.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every page into this folder instead.")
    ] = None,
) -> None:
    """Say what a reason or an error code means, why it happens and what to change."""
    prepare_stdout()
    if write is not None:
        _write(write)
    elif word is not None:
        _show(find(word).text)
    else:
        _show(_overview())


def _overview() -> str:
    width = max(len(page.word) for page in pages())
    rows = [f"    {page.word.ljust(width)}  {page.title}" for page in pages()]
    return "\n".join(["`ostinato explain WORD` prints the page of:", "", *rows])


def _show(text: str) -> None:
    """Print Markdown: rendered for a person at a terminal, as it is for a file or a pipe."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        typer.echo(text)


def _write(folder: Path) -> None:
    wanted = findings()
    present = {path.name: path for path in folder.glob("*.md")}
    written = {name for name, path in present.items() if is_generated(path.read_text("utf-8"))}
    in_the_way = sorted(present.keys() & wanted.keys() - written)
    if in_the_way:
        raise UsageError(
            f"{folder / in_the_way[0]} was not written by this command",
            code="OST4002",
            remedy="name a folder that holds these pages alone, such as docs/findings",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for stale in written - wanted.keys():
        present[stale].unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    typer.echo(f"wrote {len(wanted)} pages to {folder}")
