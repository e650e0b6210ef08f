"""What a call may leave behind: random state and memory, compared with an eager call."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphs.replaying import _assert_alike, spoil
from ostinato import Outcome, Reason, graphed
from ostinato.graphs import Runner
from ostinato.graphs.tree import flatten

_PLAIN = (str, bytes, int, float, tuple, torch.dtype, torch.device)


def alike(mine: object, theirs: object) -> None:
    """Insist on equal values, types, layouts and sharing, of Python values too."""
    _assert_alike(mine, theirs)
    for a, b in zip(flatten(mine)[0], flatten(theirs)[0], strict=True):
        if isinstance(a, _PLAIN):
            assert a == b or a != a


def held_bytes(device: torch.device) -> int:
    """Return the memory of `device` that somebody holds, after all garbage is gone."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(device)
    # Tensors are proxies and lazy modules as well: only the type is asked.
    live = (o for o in gc.get_objects() if issubclass(type(o), Tensor))
    storages: dict[int, int] = {}
    for tensor in live:
        if tensor.layout is torch.strided and tensor.device == device:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def random_state(device: torch.device) -> list[Any]:
    """Return the state of every generator a program may draw from without owning one."""
    states = [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device).tolist())
    return states


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def check_refused(
    fn: Callable[..., Any],
    reason: Reason,
    *args: Any,
    op: str | None = None,
    line: str | None = None,
    file: str | None = None,
    calls: int = 3,
) -> Runner[..., Any]:
    """Insist that `fn` runs eagerly for `reason`, is right, names its line and leaves nothing.

    Args:
        args: Given to every call, as fresh copies.
        op: Part of the name of the op that stood in the way.
        line: Part of the source line that called it.
        file: The test module that holds the line.
        calls: How many calls to make, the first of which tries to record.
    """
    device = next(a.device for a in args if isinstance(a, Tensor))
    seed()
    expected = [fn(*copy.deepcopy(args)) for _ in range(calls)]
    eager_state = random_state(device)
    seed()
    before = held_bytes(device)
    g = graphed(fn, admit_after=1)
    for wanted in expected:
        given = copy.deepcopy(args)
        alike(g(*given), wanted)
        assert g.last is not None
        assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, reason), g.last
        for part in (op, line, file and Path(file).name):
            assert part is None or part in g.last.detail, g.last
    assert random_state(device) == eager_state, "random state"
    del given
    assert g.report().recordings == 0
    assert g.report().bytes == 0
    assert held_bytes(device) <= before, "memory is kept for a recording that was refused"
    return g


def check_never_garbage(
    fn: Callable[..., Any],
    calls: list[tuple[Any, ...]],
    *,
    between: Callable[[int], object] = lambda index: None,
    rounds: int = 3,
) -> Runner[..., Any]:
    """Insist that every call equals eager, however it is answered, and stays so afterwards.

    Args:
        calls: Arguments of the calls, made in order, `rounds` times.
        between: Run before each call, with its number: what changes from call to call.
    """
    g = graphed(fn, admit_after=1)
    kept: list[tuple[Any, Any]] = []
    number = 0
    for _ in range(rounds):
        for args in calls:
            between(number)
            wanted = copy.deepcopy(fn(*copy.deepcopy(args)))
            spoil(g)
            result = g(*copy.deepcopy(args))
            alike(result, wanted)
            kept.append((result, wanted))
            number += 1
    for result, wanted in kept:
        alike(result, wanted)
    return g
