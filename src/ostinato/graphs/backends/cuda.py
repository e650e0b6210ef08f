"""CUDA graphs as a backend: the one door to the graph calls of torch and the driver.

The runner calls `record` behind its admission rules; `enter`, `fill` and `replay` on every call.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ostinato.errors import CaptureError
from ostinato.graphs.backends.cuda_capture import (
    CAPTURE_LOCK,
    Capture,
    capture_with_retries,
    forget_locals,
    refusing_inductor_graphs,
    undisturbed,
)
from ostinato.graphs.backends.cuda_failures import explained, refused, refused_by
from ostinato.graphs.backends.cuda_nodes import census
from ostinato.graphs.backends.cuda_pool import SharedPool
from ostinato.graphs.backends.cuda_recording import (
    CudaRecording,
    release_all,
    release_deferred,
)
from ostinato.graphs.backends.cuda_teardown import end_before_its_group
from ostinato.graphs.drawing import drawing_capture
from ostinato.graphs.reasons import Reason

if TYPE_CHECKING:
    from ostinato.graphs.backends.base import Step
    from ostinato.graphs.backends.memory import WorkingMemory
    from ostinato.graphs.observe import Observation

__all__ = ["CAPTURE_LOCK", "CudaBackend", "CudaRecording", "backend", "release_all"]


class CudaBackend:
    """Records steps as CUDA graphs; see `Backend` in `base.py` for the promises."""

    __slots__ = ()

    name = "cuda"

    def record(
        self,
        step: Step,
        *,
        inputs: Sequence[Tensor],
        device: torch.device,
        warmups: int,
        observation: Observation,
        restore: Callable[[], None],
        memory: WorkingMemory | None = None,
    ) -> CudaRecording:
        """Warm `step` up on the device's side stream, capture one run of it, and replay that once.

        A capture queues work and runs none of it. The one replay makes the results hold the values
        of the recorded run, and moves written tensors and random state on by one run, as on the
        tape.

        Never waits for the device, except to undo a capture that broke.

        Raises:
            CaptureError: OST1101, the step cannot be recorded; everything is undone.
        """
        _refuse_early(observation, device)
        index = torch.cuda.current_device() if device.index is None else device.index
        with CAPTURE_LOCK, torch.cuda.device(index):
            caller = torch.cuda.current_stream()
            side = _side_stream(index)
            side.wait_stream(caller)
            shared = None if memory is None else memory.pools.setdefault(index, SharedPool())
            if shared is not None:
                shared.use.move_to(side)
            try:
                with undisturbed(), torch.cuda.stream(side):
                    recording = _record(step, inputs, side, warmups, observation, restore, shared)
            except CaptureError:
                raise
            except Exception as error:
                forget_locals(error)
                raise explained(error) from error
            finally:
                caller.wait_stream(side)
            recording.enter()
            release_deferred()
            return recording

    def time_us(
        self,
        run: Callable[[], object],
        *,
        before: Callable[[], None],
        device: torch.device,
        repeats: int,
    ) -> float:
        """Return the median time of one `run` from an idle stream, host and device together."""
        with torch.cuda.device(device):
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            times_ms: list[float] = []
            for repeat in range(repeats + 1):
                before()
                torch.cuda.current_stream().synchronize()
                begin.record()
                run()
                end.record()
                end.synchronize()
                if repeat:
                    times_ms.append(begin.elapsed_time(end))
        return statistics.median(times_ms) * 1000

    def fill(self, statics: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Copy each given tensor into its static twin of the same shape and dtype.

        The host waits only for a tensor that comes from the CPU. Host time in us for 1, 2 and 8
        tensors (H200, torch 2.11, 2026-11-29): one by one 6.1, 11.5, 45; all at once 5.4, 5.3, 7.5
        of one dtype, but 5.4, 10.5, 42 of several; by dtype 23 for 8 tensors of 4 dtypes. One
        tensor goes by itself: the driver copies 256 MiB in 138 us, torch's kernel for lists in 175.
        """
        if len(statics) == 1:
            statics[0].copy_(given[0])
            return
        if len(statics) <= _TOO_FEW_TO_GROUP:
            torch._foreach_copy_(list(statics), list(given))
            return
        groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for static, source in zip(statics, given, strict=True):
            group = groups.get(static.dtype)
            if group is None:
                group = groups[static.dtype] = ([], [])
            group[0].append(static)
            group[1].append(source)
        for same_dtype, sources in groups.values():
            torch._foreach_copy_(same_dtype, sources)


_TOO_FEW_TO_GROUP = 2
_BACKEND = CudaBackend()


def backend() -> CudaBackend:
    """Return the CUDA backend of this process; it holds no state."""
    return _BACKEND


@cache
def _side_stream(device_index: int) -> torch.cuda.Stream:
    """Return the stream on which every recording of a device is made."""
    return torch.cuda.Stream(device_index)


def _refuse_early(observation: Observation, device: torch.device) -> None:
    """Raise for what the observed run shows to be impossible, before anything is touched."""
    if error := refused_by(observation):
        raise error
    for generator in observation.generators:
        if _other(generator.device, device):
            raise refused(
                Reason.UNREGISTERED_GENERATOR,
                f"the function draws from a generator on {generator.device}; a graph on {device} "
                "cannot advance it",
            )
    elsewhere = sorted(str(used) for used in observation.devices if _other(used, device))
    if elsewhere:
        raise refused(
            Reason.SEVERAL_DEVICES,
            f"the function runs on {', '.join(elsewhere)} besides {device}; a graph has one device",
        )
    if torch.cuda.is_current_stream_capturing():
        raise refused(Reason.NESTED_CALL, "the current stream is capturing another graph")


def _other(used: torch.device, device: torch.device) -> bool:
    same_index = None in (used.index, device.index) or used.index == device.index
    return used.type != device.type or not same_index


def _record(
    step: Step,
    inputs: Sequence[Tensor],
    side: torch.cuda.Stream,
    warmups: int,
    observation: Observation,
    restore: Callable[[], None],
    shared: SharedPool | None,
) -> CudaRecording:
    def guarded() -> object:
        with refusing_inductor_graphs():
            return step()

    for _ in range(warmups):
        restore()
        guarded()
    with drawing_capture() if observation.draws else nullcontext(True) as is_alone:
        if not is_alone:
            raise refused(Reason.CAPTURE_ERROR, "runs that draw were under way for too long")
        made = capture_with_retries(
            guarded,
            restore=restore,
            stream=side,
            generators=observation.generators,
            draws=observation.draws,
            idle=observation.ops == 0,
            shared=shared,
        )
    return _finish(made, inputs, side, observation, shared)


def _finish(
    made: Capture,
    inputs: Sequence[Tensor],
    side: torch.cuda.Stream,
    observation: Observation,
    shared: SharedPool | None,
) -> CudaRecording:
    counted = census(made.graph.raw_cuda_graph())
    if counted and counted.nested:
        if shared is not None:
            shared.leave(made.pool)
        made.graph.reset()
        raise refused(Reason.COMPILED_INSIDE, "the function replays a CUDA graph of its own")
    made.graph.instantiate()
    recording = CudaRecording(
        made.graph,
        made.result,
        nodes=counted.working if counted else observation.ops,
        nodes_counted=counted is not None,
        pool_bytes=made.pool_bytes,
        keep=(
            tuple(inputs),
            [outside.detach() for outside in observation.externals],
            tuple(observation.generators),
        ),
        stream=side,
        draws=observation.draws,
        shared=shared,
        pool=made.pool,
    )
    if observation.has_collective:
        end_before_its_group(recording)
    recording.replay()
    return recording
