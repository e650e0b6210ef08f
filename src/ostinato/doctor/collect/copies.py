"""Bytes that cross the link between host and device: from which line, how many, how they grow."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ostinato.doctor.activity import Copy, SizedCopy
from ostinato.doctor.collect.gates import CALLER, if_given
from ostinato.doctor.collect.gpu_use import has_gpu
from ostinato.doctor.collect.notebook import MOST_TIMES, Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.places import place_of, users_frame
from ostinato.doctor.finding import Place

_LEAST_BYTES = 4096
_MOST_SIZES = 512


@dataclass(slots=True)
class _Seen:
    direction: str
    place: Place | None
    pinned: bool
    count: int = 0
    bytes: int = 0
    us: float = 0.0
    by_size: dict[int, list[float]] = field(default_factory=dict)
    each_us: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))


class Copies:
    """Counts copies of at least 4 KiB inside and between steps."""

    name = "copies"

    def __init__(self, notebook: Notebook, patches: Patches) -> None:
        self._notebook = notebook
        self._patches = patches
        self._seen: dict[tuple[CodeType | None, int, str], _Seen] = {}

    def start(self) -> None:
        """Stand before what moves tensors."""
        if not has_gpu():
            raise OSError("there is no GPU to copy to")
        kinds = (torch.device, str, int, Tensor, torch.nn.Parameter)
        self._patches.replace(Tensor, "to", if_given(kinds, partial(self._around, caller=CALLER)))
        for name in ("cuda", "cpu", "copy_"):
            self._patches.replace(Tensor, name, self._around)

    def stop(self) -> None:
        """Nothing to do: the patches are undone together."""

    def _around(self, original: Callable[..., Any], caller: int = 1) -> Callable[..., Any]:
        threads = self._notebook.threads

        def moving(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not threads.mine.looks or threads.mine.quiet:
                return original(tensor, *args, **kwargs)
            began = perf_counter_ns()
            result = original(tensor, *args, **kwargs)
            if result is not tensor or (args and isinstance(args[0], Tensor)):
                took = perf_counter_ns() - began
                source = args[0] if result is tensor else tensor
                self._notebook.note(self._note, source, result, took, sys._getframe(caller))
            return result

        return moving

    def _note(self, source: Tensor, result: Tensor, ns: int, frame: Any) -> None:
        if source.is_cuda == result.is_cuda or not self._notebook.here.began:
            return
        size = result.numel() * result.element_size()
        if size < _LEAST_BYTES:
            return
        users = users_frame(frame)
        direction = "h2d" if result.is_cuda else "d2h"
        key = (users.f_code if users else None, users.f_lineno if users else 0, direction)
        seen = self._seen.get(key)
        if seen is None:
            host = source if result.is_cuda else result
            place = place_of(users, frame) if users else None
            seen = self._seen[key] = _Seen(direction, place, host.is_pinned())
        weight, rows = self._notebook.here.weight, self._notebook.here.size
        seen.count += weight
        seen.bytes += weight * size
        seen.us += weight * ns / 1e3
        seen.each_us.append(ns / 1e3)
        if rows in seen.by_size or len(seen.by_size) < _MOST_SIZES:
            entry = seen.by_size.setdefault(rows, [0, 0, 0.0])
            entry[0] += weight
            entry[1] += weight * size
            entry[2] += weight * ns / 1e3

    def fields(self) -> dict[str, Any]:
        """Return the copies, the largest first."""
        found = [
            Copy(
                direction=seen.direction,
                place=seen.place,
                count=seen.count,
                bytes=seen.bytes,
                us=seen.us,
                pinned=seen.pinned,
                each_us=tuple(seen.each_us),
                by_size=tuple(
                    SizedCopy(size, int(n), int(total), us)
                    for size, (n, total, us) in sorted(seen.by_size.items())
                ),
            )
            for seen in self._seen.values()
        ]
        return {"copies": tuple(sorted(found, key=lambda copy: -copy.bytes))}
