"""How often the kernel took a CPU away from a process: context switches, by thread and in all."""

from __future__ import annotations

from time import sleep

from ostinato.doctor.collect.host.look import Look, fields_of


def involuntary_switches(look: Look, pid: str) -> int | None:
    """Return the involuntary context switches of all threads of a process so far."""
    return _switches(look, pid, "nonvoluntary_ctxt_switches")


def voluntary_switches(look: Look, pid: str) -> int | None:
    """Return how often its threads gave the CPU away, by waiting."""
    return _switches(look, pid, "voluntary_ctxt_switches")


def windows_of_switches(look: Look, pid: str, windows: int, window_s: float) -> tuple[int, ...]:
    """Return the involuntary switches in each of some windows; empty where they cannot be read."""
    counts = []
    before = involuntary_switches(look, pid)
    for _ in range(windows if before is not None else 0):
        sleep(window_s)
        now = involuntary_switches(look, pid)
        if now is None or before is None:  # it has ended
            break
        counts.append(max(0, now - before))
        before = now
    return tuple(counts)


def _switches(look: Look, pid: str, name: str) -> int | None:
    found = None
    for task in look.names(f"/proc/{pid}/task"):
        value = fields_of(look.text(f"/proc/{pid}/task/{task}/status")).get(name, "")
        if value.isdigit():
            found = (found or 0) + int(value)
    return found
