"""Capture one run of a step into a CUDA graph, and leave the process as it was found.

`torch.cuda.graph` is not used: it synchronises the device and empties both of torch's caches at
each entry, which makes every other stream of a serving process wait and allocate anew, and it has
no way back when the capture cannot be ended.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any, cast

import torch
from torch import Tensor

from ostinato.graphs.backends.cuda_failures import InductorGraphInside, invalidated_from_outside
from ostinato.graphs.backends.cuda_generators import default_kept_out, get_out
from ostinato.graphs.backends.cuda_pool import (
    Pool,
    SharedPool,
    new_pool,
    reclaim,
    reserved_bytes,
)
from ostinato.graphs.backends.cuda_waits import device_waits_held_back

# One capture at a time in the whole process: torch's allocator, generators and cuBLAS handles keep
# process-wide state about "the" capture. Re-entrant, so that the runner may hold it round more.
CAPTURE_LOCK = threading.RLock()

_ATTEMPTS = 3
_FIRST_PAUSE_S = 0.01

# Graphs whose capture could not be ended. torch 2.11's pinned-memory allocator keeps a pointer to
# each (pytorch#180395), so the empty objects, a few hundred bytes, are never freed.
_unended: list[torch.cuda.CUDAGraph] = []


@dataclass(frozen=True, slots=True)
class Capture:
    """A graph not yet instantiated, its pool and what that grew by, and what the step returned."""

    graph: torch.cuda.CUDAGraph
    pool: Pool
    pool_bytes: int
    result: object


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold off what must not happen while a graph is captured, and put it back as it was.

    The garbage collector, because a finalizer may free device memory or destroy another graph in
    the middle of the capture; the cache of autocast's weight casts, because a graph that read a
    cast made by an earlier eager run would never see the weight change (pytorch#81558), and would
    read freed memory once that cache is cleared.
    """
    collecting = gc.isenabled()
    caching = torch.is_autocast_cache_enabled()
    gc.disable()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(caching)
        if collecting:
            gc.enable()


@contextmanager
def refusing_inductor_graphs() -> Iterator[None]:
    """Make a `torch.compile(mode="reduce-overhead")` part raise in this thread, before it runs.

    Its own graphs live in memory that inductor hands to the next compiled call, so a graph of ours
    round them would replay over memory that is no longer theirs.
    """
    trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    manager = getattr(trees, "CUDAGraphTreeManager", None)
    run = getattr(manager, "_run", None)
    if manager is None or run is None:
        yield
        return
    recording_thread = threading.get_ident()

    def refuse(self: object, *args: object, **kwargs: object) -> object:
        if threading.get_ident() == recording_thread:
            raise InductorGraphInside("a compiled part replays a CUDA graph of its own")
        return run(self, *args, **kwargs)

    manager._run = refuse
    try:
        yield
    finally:
        manager._run = run


def capture_with_retries(
    step: Callable[[], object],
    *,
    restore: Callable[[], None],
    stream: torch.cuda.Stream,
    generators: Sequence[torch.Generator],
    draws: bool,
    idle: bool,
    shared: SharedPool | None,
) -> Capture:
    """Capture `step`, again after a pause if something else than the step broke the capture.

    Hold `CAPTURE_LOCK`.

    Args:
        step: What to record.
        restore: Called before each attempt, outside the capture.
        stream: The current stream, not the default one, on which the step was warmed up.
        generators: Private generators of this device that the step draws from.
        draws: The step draws random numbers.
        idle: The step launches nothing: one fill is recorded in its place, since torch warns of a
            graph without nodes.
        shared: Where its memory comes from; None: from a pool of its own.
    """
    marker = torch.zeros(1, device=stream.device)
    pause_s = _FIRST_PAUSE_S
    for attempt in range(1, _ATTEMPTS + 1):
        restore()
        try:
            with device_waits_held_back(CAPTURE_LOCK):
                return _capture(
                    step, stream, generators, marker, draws=draws, idle=idle, shared=shared
                )
        except Exception as error:
            if attempt == _ATTEMPTS or not invalidated_from_outside(error):
                raise
        time.sleep(pause_s)
        pause_s *= 4
    raise AssertionError("the last attempt returns or raises")


def _capture(
    step: Callable[[], object],
    stream: torch.cuda.Stream,
    generators: Sequence[torch.Generator],
    marker: Tensor,
    *,
    draws: bool,
    idle: bool,
    shared: SharedPool | None,
) -> Capture:
    # keep_graph: the driver can count the nodes, and a graph given up is never instantiated.
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    pool = new_pool() if shared is None else shared.enter()
    for generator in generators:
        graph.register_generator_state(generator)
    # cuBLAS keeps one workspace per stream. Forgotten before the capture, it is taken from the
    # private pool and so lives as long as the graph; forgotten after it, no eager call shares it.
    # One in the common pool would be freed under the graph by the next such call in the process.
    torch._C._cuda_clearCublasWorkspaces()
    reserved = reserved_bytes(stream.device_index)
    try:
        with default_kept_out(stream.device_index, draws=draws):
            graph.capture_begin(pool=cast(Any, pool), capture_error_mode="thread_local")
        result = step()
        if idle:
            marker.zero_()
        with torch.cuda.stream(stream):
            _end(graph)
    except BaseException as error:
        result = None  # it lies in the pool, and this frame cannot be emptied
        forget_locals(error)
        _give_up(graph, pool, stream, generators, marker, shared, draws=draws)
        raise
    finally:
        torch._C._cuda_clearCublasWorkspaces()
    taken = max(0, reserved_bytes(stream.device_index) - reserved)
    return Capture(graph, pool, taken, result)


def forget_locals(error: BaseException | None) -> None:
    """Empty the frames that an exception went through: their locals hold tensors of the pool."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _end(graph: torch.cuda.CUDAGraph) -> None:
    # Under -W error torch's warning of an empty graph arrives as an exception, once all is done.
    with suppress(Warning):
        graph.capture_end()


def _give_up(
    graph: torch.cuda.CUDAGraph,
    pool: Pool,
    stream: torch.cuda.Stream,
    generators: Sequence[torch.Generator],
    marker: Tensor,
    shared: SharedPool | None,
    *,
    draws: bool,
) -> None:
    """Undo a capture, whatever state it is in."""
    ended = True
    with torch.cuda.stream(stream):
        if torch.cuda.is_current_stream_capturing():
            with suppress(RuntimeError):
                marker.zero_()
        try:
            _end(graph)
        except RuntimeError:
            ended = False
        if shared is not None:
            shared.leave(pool)
        graph.reset()
        if not ended:
            _unended.append(graph)
            if shared is not None:
                shared.abandon()
            reclaim(pool, stream.device_index, is_shared=shared is not None)
            if draws or generators:
                _mend_generators(generators, marker, draws=draws)


def _mend_generators(generators: Sequence[torch.Generator], marker: Tensor, *, draws: bool) -> None:
    """Tell the generators that the capture is over.

    A capture that could not be ended leaves them believing that it goes on, and the next eager
    random op fails with "Offset increment outside graph capture". A good capture ends that state;
    one that is broken from outside, too, is ended all the same, or the stream would stay captured.
    Where all are broken, the generators get out by themselves.
    """
    for _ in range(_ATTEMPTS):
        if _captures_nothing(generators, marker, draws=draws):
            return
    default = torch.cuda.default_generators[marker.device.index]
    for generator in (*generators, *([default] if draws else [])):
        get_out(generator)


def _captures_nothing(
    generators: Sequence[torch.Generator], marker: Tensor, *, draws: bool
) -> bool:
    """Say whether a capture of one fill, with the generators in its service, could be ended."""
    graph, pool = torch.cuda.CUDAGraph(keep_graph=True), new_pool()
    for generator in generators:
        graph.register_generator_state(generator)
    with suppress(RuntimeError):
        with default_kept_out(marker.device.index, draws=draws):
            graph.capture_begin(pool=cast(Any, pool), capture_error_mode="thread_local")
        marker.zero_()
    try:
        _end(graph)
    except RuntimeError:
        graph.reset()
        _unended.append(graph)
        reclaim(pool, marker.device.index, is_shared=False)
        return False
    graph.reset()
    return True
