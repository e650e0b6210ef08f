"""Where the reports of `ostinato doctor` go: checked before a program runs, written after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer


def check_places(places: dict[str, Path | None]) -> None:
    """Refuse what cannot be written, by the name of its option, before anything runs."""
    for option, path in places.items():
        if path is None or str(path) == "-":
            continue
        why = _why_not(path)
        if why:
            raise typer.BadParameter(why, param_hint=option)


def _why_not(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder"
    if path.exists():
        return "" if os.access(path, os.W_OK) else f"{path} may not be written"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "" if os.access(path.parent, os.W_OK) else f"nothing may be written in {path.parent}"


def write_report(path: Path | None, text: Callable[[], str]) -> bool:
    """Write one report where it was asked for; say so and return False where that fails."""
    if path is None:
        return True
    try:
        if str(path) == "-":
            sys.stdout.write(text())
        else:
            path.write_text(text(), encoding="utf-8")
    except OSError as error:
        typer.echo(f"{path} was not written: {error.strerror or error}", err=True)
        return False
    return True
