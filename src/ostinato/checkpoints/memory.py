"""How much memory a load may take, asked before it begins.

Without this question a model that does not fit ends in the kernel killing the process, with no word
to the user. The answer is the smallest of what the machine has, what the control group allows (a
container), and what the process limit leaves (`ulimit -v`).
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ostinato.errors import ResourceError
from ostinato.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Return how many bytes of host memory this process may still take."""
    answers = (psutil.virtual_memory().available, group_bytes(_GROUP), _process_bytes())
    return max(0, min(answer for answer in answers if answer is not None))


def require_memory(needed: int, available: int, what: str, where: str) -> None:
    """Refuse to go on when `needed` bytes are more than `available`.

    Raises:
        ResourceError: OST2025.
    """
    if needed > available:
        raise out_of_memory(
            f"{what} needs about {format_bytes(needed)} of {where} memory, "
            f"and {format_bytes(available)} are free"
        )


def out_of_memory(problem: str) -> ResourceError:
    """Build the error for a model that does not fit."""
    return ResourceError(
        problem,
        code="OST2025",
        remedy="stop other programs, take a smaller model, or halve the weights: --dtype bfloat16",
    )


@contextmanager
def telling_memory(what: str) -> Iterator[None]:
    """Turn running out of memory inside the block into the error that says what to do.

    Raises:
        ResourceError: OST2025, host or GPU memory ran out.
    """
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error).strip()
        # A failed host allocation is a plain RuntimeError in torch, known by its words alone.
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
            first = text.splitlines()[0] if text else type(error).__name__
            raise out_of_memory(f"memory ran out while {what}: {first}") from error
        raise


def group_bytes(group: Path) -> int | None:
    """Return what the control group (version 2) at `group` leaves; None if it sets no limit.

    File pages nobody reads count as free: the kernel drops them when memory is asked for.
    """
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        counters = (group / "memory.stat").read_text(encoding="ascii").split()
    except OSError:
        return None
    if limit == "max":
        return None
    droppable = 0
    if "inactive_file" in counters:
        droppable = int(counters[counters.index("inactive_file") + 1])
    return int(limit) - used + droppable


def _process_bytes() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    return limit - int(psutil.Process().memory_info().vms)
