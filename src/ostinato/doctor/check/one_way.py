"""Where a run followed one way only, because Python was given an assumed number."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator

from ostinato.doctor.check.deciding import branch_decided_by
from ostinato.doctor.check.line import Line, place_of
from ostinato.doctor.check.questions import OF_THE_WAY, Gap
from ostinato.doctor.finding import Place


def branch_after(line: Line | None) -> Place | None:
    """Return the branch that the number read at a line plainly decides, or None."""
    if line is None:
        return None
    source = linecache.getlines(line.path)
    number = branch_decided_by("".join(source), line.line, line.column)
    if number is None:
        return None
    return Place(line.path, number, function=line.function, code=source[number - 1].strip())


def one_way_gaps(lines: Iterable[Line | None]) -> Iterator[Gap]:
    """Say what stayed unseen at each line that was given an assumed number."""
    for line in lines:
        place = place_of(line) if line else None
        branch = branch_after(line)
        if branch is None:
            yield Gap(
                "which ways Python takes with other numbers than the one assumed here",
                place,
                "keep the number on the device as a 0-dim tensor, and check again",
                frozenset({"control-flow"}),
            )
        else:
            yield Gap(
                f"the other ways at {branch}, which the number read here decides",
                place,
                "choose on the device (torch.where) or outside of the step, and check again",
                OF_THE_WAY,
            )
