"""Folded stacks: one line for each stack and its count, as every flame graph tool reads them."""

from __future__ import annotations

from collections.abc import Iterable

from ostinato.doctor.evidence import Stack


def folded_stacks(stacks: Iterable[Stack]) -> str:
    """Return "thread;outer;inner count" lines; time spent waiting for the GIL is a frame on top."""
    lines = []
    for stack in stacks:
        frames = ";".join(_frame(name) for name in (stack.thread, *stack.frames))
        runs = stack.samples - stack.waits_for_gil
        if runs:
            lines.append(f"{frames} {runs}")
        if stack.waits_for_gil:
            lines.append(f"{frames};[waits for the GIL] {stack.waits_for_gil}")
    return "".join(f"{line}\n" for line in lines)


def _frame(name: str) -> str:
    return name.replace(";", ",").replace("\n", " ")
