"""Time the same work in two ways, unseen by the other collectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ostinato.doctor.collect.notebook import Notebook

_REPEATS = 5


class Quiet:
    """What this thread does within is the doctor's own."""

    def __init__(self, notebook: Notebook) -> None:
        self._here = notebook.here
        self._before = False

    def __enter__(self) -> None:
        self._before = self._here.quiet
        self._here.quiet = True

    def __exit__(self, *_: object) -> None:
        self._here.quiet = self._before


def time_us(run: Callable[[], Any], like: Tensor) -> float:
    """Return the median time of a call whose work is done where `like` lives, in us."""
    from ostinato import measure

    return measure.time_us(run, device=like.device, repeats=_REPEATS, warmups=1).median_us
