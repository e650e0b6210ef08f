"""Threads besides the one that makes the checked call.

Nobody watches them: what looks at a run belongs to the thread that is checked. Tensors without
contents still tell who uses them, and so it is known that a thread took part, and at which line.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from ostinato.doctor.check.line import Line, place_of
from ostinato.doctor.check.questions import OF_THE_WAY, Gap
from ostinato.graphs.aten_calls import base_name
from ostinato.graphs.observe_rules import is_metadata

_HAS_NO_CONTENTS = (DataDependentOutputException, DynamicOutputShapeException)


@dataclass(frozen=True, slots=True)
class UsedElsewhere:
    """A call of torch that another thread made."""

    func: OpOverload
    line: Line | None

    @property
    def is_read(self) -> bool:
        """Whether the host waits for the value or the shape of its result."""
        tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        return bool(tags & set(self.func.tags))


def is_use(func: OpOverload) -> bool:
    """Whether the call does more than ask where a tensor lies, or of what shape it is."""
    return not is_metadata(func) and base_name(func) != "device"


@contextmanager
def threads_fail_quietly() -> Iterator[None]:
    """Show nothing of a thread that fails because its tensors have no contents.

    What it did is in the report. Nor is anything shown of a thread that asks for the end.
    """
    show = threading.excepthook

    def show_others(failed: threading.ExceptHookArgs) -> None:
        if not issubclass(failed.exc_type, (*_HAS_NO_CONTENTS, SystemExit)):
            show(failed)

    threading.excepthook = show_others
    try:
        yield
    finally:
        threading.excepthook = show


def gaps_of_threads(used: Iterable[UsedElsewhere]) -> Iterator[Gap]:
    """Say which lines of other threads were not looked at; each once."""
    by_line = {use.line and (use.line.path, use.line.line): use for use in used}
    for use in by_line.values():
        yield Gap(
            f"what another thread of the call does with tensors ({use.func})",
            place_of(use.line) if use.line else None,
            "make all calls of torch in the thread that makes the call, and check again",
            OF_THE_WAY,
        )
