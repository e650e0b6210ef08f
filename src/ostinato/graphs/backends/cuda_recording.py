"""One CUDA graph that can be replayed, and everything that must live as long as it does.

A graph holds addresses, not tensors. So this object keeps what stands at those addresses: the
static inputs, the memory of every outside tensor as it was when recorded (by alias: rebinding
`param.data` frees nothing a replay reads), the results, the generators.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from ostinato.errors import InternalError
from ostinato.graphs.backends.cuda_loop import DeviceLoop, NoLoop
from ostinato.graphs.backends.cuda_pool import Pool, SharedPool, Use
from ostinato.graphs.backends.ending import Ending, replay_in_turn

_current_raw_stream: Callable[[int], int] = torch._C.__dict__.get(
    "_cuda_getCurrentRawStream", lambda _: 0
)

# Every recording that still owns a graph, so that all of them can go before a process group does.
_live: weakref.WeakSet[CudaRecording] = weakref.WeakSet()


class _Held:
    """What a recording owns; apart from it, so that a finalizer can own this and not revive it."""

    __slots__ = ("graph", "keep", "loops", "pool", "shared", "use")

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        keep: object,
        use: Use,
        pool: Pool,
        shared: SharedPool | None,
    ) -> None:
        self.graph = graph
        self.keep: object = keep
        self.use, self.pool, self.shared = use, pool, shared
        self.loops: dict[Ending, DeviceLoop | None] = {}

    def let_go(self) -> None:
        # A capture of this thread forbids both waiting and destroying a graph.
        if torch.cuda.is_current_stream_capturing():
            _deferred.append(self)
            return
        # Wait for the last use alone, not for the device. A dead device only raises.
        with suppress(RuntimeError):
            self.use.wait()
        for loop in self.loops.values():
            if loop is not None:
                loop.release()
        self.loops = {}
        if self.shared is not None:
            self.shared.leave(self.pool)
            self.shared = None
        with suppress(RuntimeError):
            self.graph.reset()
        self.keep = None


# Let go in the middle of a capture, say by the garbage collector; released when that is over.
_deferred: list[_Held] = []


def release_deferred() -> None:
    """Release what was let go while a capture was under way."""
    while _deferred:
        _deferred.pop().let_go()


class CudaRecording:
    """A captured graph and its results; see `Recording` in `base.py`.

    Attributes:
        replay: Launch the graph on the current stream of its device. It is torch's C++ method
            itself, bound: the Python one above it checks a debugging aid that we never turn on.
        nodes: Graph nodes that do work in one replay.
        nodes_counted: Whether the driver counted them; otherwise `nodes` are the eager run's ops.
        bytes: The private pool's memory (see `reserved_bytes`).
    """

    __slots__ = (
        "__weakref__",
        "_device_index",
        "_draws",
        "_finalizer",
        "_held",
        "_use",
        "bytes",
        "nodes",
        "nodes_counted",
        "replay",
        "result",
    )

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        result: object,
        *,
        nodes: int,
        nodes_counted: bool,
        pool_bytes: int,
        keep: object,
        stream: torch.cuda.Stream,
        draws: bool,
        shared: SharedPool | None,
        pool: Pool,
    ) -> None:
        self.result: Any = result
        self.nodes = nodes
        self.nodes_counted = nodes_counted
        self.bytes = pool_bytes
        self.replay: Callable[[], None] = super(torch.cuda.CUDAGraph, graph).replay
        self._device_index: int = stream.device_index
        self._draws = draws
        self._use = Use() if shared is None else shared.use
        self._use.move_to(stream)
        self._held = _Held(graph, keep, self._use, pool, shared)
        self._finalizer = weakref.finalize(self, self._held.let_go)  # at interpreter exit too
        _live.add(self)

    def enter(self) -> None:
        """Order what follows on the current stream after this recording's last use elsewhere.

        Call it before the static inputs are filled: fill, replay and the copies handed out are one
        use, and two uses of one recording must never overlap. Costs one integer comparison while
        the stream stays the same; a change of stream makes the new one wait, never the host.
        """
        if _current_raw_stream(self._device_index) != self._use.raw:
            self._use.move_to(torch.cuda.current_stream(self._device_index))

    def repeat(self, times: int, ending: Ending) -> int:
        """Replay up to `times` times until `ending`, as one launch where the driver can loop.

        A loop on the device finds out by itself when to end, so the host can tell only the most
        that may run. Elsewhere the replays are queued one by one and all of them run, unless the
        bell rings while they are being queued; `ending.why_queued` says why.
        """
        loop = self._loop(ending)
        if loop is None or times == 1:
            return replay_in_turn(self.replay, times, ending)
        if times:
            ending.arm(times)
            loop.launch(_current_raw_stream(self._device_index))
        return times

    def _loop(self, ending: Ending) -> DeviceLoop | None:
        loops = self._held.loops
        if ending not in loops:
            try:
                if self._draws:  # torch moves their state on at each replay, on the host
                    raise NoLoop("it draws from a random generator")
                loops[ending] = DeviceLoop(self._held.graph, ending, self._device_index)
            except NoLoop as reason:
                loops[ending] = None
                ending.why_queued = str(reason)
        return loops[ending]

    def release(self) -> None:
        """Free the graph and its pool, after the last replay in flight; safe to call twice."""
        self.replay = _replay_released
        self.result = None
        self._finalizer()


def release_all() -> None:
    """Release every live recording of the process.

    A graph that holds an NCCL kernel must go before its communicator: call this before
    `destroy_process_group()`. At interpreter exit it happens by itself.
    """
    for recording in list(_live):
        recording.release()


def _replay_released() -> None:
    raise InternalError(
        "a released recording was asked to replay",
        code="OST1902",
        remedy="report it with the text of the error",
    )
