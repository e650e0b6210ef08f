"""What the commands of `ostinato bench` share: options, lists of words, progress, the file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.run import DeviceName
from ostinato.errors import UsageError

Device = Annotated[DeviceName, typer.Option(help="auto: a GPU if there is one.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the result here, after every part.")
]
BudgetS = Annotated[
    float | None,
    typer.Option(min=0, help="After so many seconds, what remains is reported as not run."),
]
Tiny = Annotated[bool, typer.Option("--tiny", help="Toy sizes: to see that everything runs.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the line of JSON and nothing else on stdout.")
]


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list that is separated by commas."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of a list, each at least 1.

    Raises:
        UsageError: it is empty, or something else is in it.
    """
    listed = words(text)
    if not listed or not all(word.isdecimal() and int(word) for word in listed):
        raise UsageError(
            f"{option} must be numbers of at least 1, separated by commas, got {text!r}",
            code="OST4021",
            remedy=f"pass --{option} 1,8,32",
        )
    return tuple(int(word) for word in listed)


def tell(what: str) -> None:
    """Say on stderr what is being measured."""
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def save(values: Mapping[str, object], out: Path | None) -> None:
    """Write the result so far, whole or not at all: a run that is killed leaves the part before."""
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(values, allow_nan=False, indent=1)
    part = out.with_name(f"{out.name}.part")
    part.write_text(f"{text}\n", encoding="utf-8")
    part.replace(out)
