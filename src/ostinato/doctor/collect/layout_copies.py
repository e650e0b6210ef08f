"""Copies that were made only for their layout, and whether attention was what they were made for.

Where trials are wished, the first call of attention that gets such a copy is timed with it, and
with its argument left as it was.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ostinato.doctor.activity import LayoutCopy
from ostinato.doctor.collect.gates import CALLER, if_loose
from ostinato.doctor.collect.notebook import MOST_TIMES, Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.places import place_of, users_frame
from ostinato.doctor.collect.trials import Quiet, time_us
from ostinato.doctor.finding import Place

_RECENT = 48
_DEVICE_BYTES_PER_US = 3.0e6  # read and written, of a copy on a data-centre GPU


@dataclass(slots=True)
class _Copy:
    op: str
    place: Place | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    count: int = 0
    bytes: int = 0
    us: float = 0.0
    feeds: str = ""
    times: tuple[float, float] | None = None
    each_us: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))


@dataclass(slots=True)
class _Fresh:
    """A copy that was just made, to be known again when attention gets it."""

    pointer: int
    shape: tuple[int, ...]
    source_strides: tuple[int, ...]
    copy: _Copy = field(repr=False)


class LayoutCopies:
    """Notes what `contiguous` and `reshape` copy."""

    name = "layout"

    def __init__(self, notebook: Notebook, patches: Patches, *, trials: bool) -> None:
        self._notebook = notebook
        self._patches = patches
        self._trials = trials
        self._copies: dict[tuple[Any, ...], _Copy] = {}
        self._fresh: deque[_Fresh] = deque(maxlen=_RECENT)

    def start(self) -> None:
        """Stand before what copies."""
        self._patches.replace(Tensor, "contiguous", if_loose(self._around("contiguous")))
        self._patches.replace(Tensor, "reshape", if_loose(self._around("reshape")))

    def stop(self) -> None:
        """Nothing to do: the patches are undone together."""

    def _around(self, op: str) -> Callable[[Any], Any]:
        threads = self._notebook.threads

        def make(original: Any) -> Any:
            def copying(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if is_compiling() or not threads.mine.looks or threads.mine.quiet:
                    return original(tensor, *args, **kwargs)
                began = perf_counter_ns()
                result = original(tensor, *args, **kwargs)
                ended = perf_counter_ns()
                self._notebook.note(
                    self._note, op, tensor, result, ended - began, sys._getframe(CALLER)
                )
                return result

            return copying

        return make

    def _note(self, op: str, source: Any, result: Any, ns: int, frame: Any) -> None:
        if not isinstance(result, Tensor) or result.data_ptr() == source.data_ptr():
            return  # a view was enough
        users = users_frame(frame)
        known = (op, frame.f_code, frame.f_lineno, source.shape)
        copy = self._copies.get(known)
        if copy is None:
            place = None if users is None else place_of(users, frame)
            copy = _Copy(op, place, tuple(source.shape), tuple(source.stride()))
            copy = self._copies.setdefault(known, copy)
        size, weight = result.numel() * result.element_size(), self._notebook.here.weight
        copy.count += weight
        copy.bytes += weight * size
        us = 2 * size / _DEVICE_BYTES_PER_US if result.is_cuda else ns / 1e3
        copy.us += weight * us
        copy.each_us.append(us)
        shape, strides = tuple(result.shape), tuple(source.stride())
        self._fresh.append(_Fresh(result.data_ptr(), shape, strides, copy))

    def hear_attention(self, original: Any, given: dict[str, Any]) -> None:
        """Hear of a call: find the arguments of attention among the copies that were just made."""
        if not self._fresh:
            return
        for name in ("query", "key", "value"):
            pointer, shape = given[name].data_ptr(), tuple(given[name].shape)
            for fresh in self._fresh:
                if fresh.pointer == pointer and fresh.shape == shape:
                    fresh.copy.feeds = "attention"
                    if self._trials and fresh.copy.times is None:
                        fresh.copy.times = self._try_layout(original, given, name, fresh)
        self._fresh.clear()

    def _try_layout(
        self, original: Any, given: dict[str, Any], name: str, fresh: _Fresh
    ) -> tuple[float, float]:
        """Return the time of one call with the copy, its making included, and without."""
        with Quiet(self._notebook), torch.no_grad():
            copied = {k: v.detach() if isinstance(v, Tensor) else v for k, v in given.items()}
            loose = torch.empty_strided(
                fresh.shape,
                fresh.source_strides,
                dtype=given[name].dtype,
                device=given[name].device,
            )
            loose.copy_(copied[name])

            def with_copy() -> Any:
                return original(**(copied | {name: loose.contiguous()}))

            def without_copy() -> Any:
                return original(**(copied | {name: loose}))

            query = given["query"]
            return time_us(with_copy, query), time_us(without_copy, query)

    def fields(self) -> dict[str, Any]:
        """Return the copies by line and shape."""
        return {"layout_copies": tuple(_layout(copy) for copy in list(self._copies.values()))}


def _layout(copy: _Copy) -> LayoutCopy:
    return LayoutCopy(
        op=copy.op,
        place=copy.place,
        count=copy.count,
        bytes=copy.bytes,
        us=copy.us,
        shape=copy.shape,
        strides=copy.strides,
        feeds=copy.feeds,
        with_copy_us=copy.times[0] if copy.times else None,
        without_copy_us=copy.times[1] if copy.times else None,
        each_us=tuple(copy.each_us),
    )
