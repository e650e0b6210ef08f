"""The CPU twin of a CUDA graph: the aten calls of one run, made again on the same addresses.

A CPU gains little speed from it; what it shows is the semantics. Python values, addresses and the
sequence of calls are frozen as in a CUDA graph, and what a CUDA graph refuses is refused here with
the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ostinato.errors import CaptureError, InternalError
from ostinato.graphs.backends.ending import replay_in_turn
from ostinato.graphs.backends.tape_code import Writer
from ostinato.graphs.backends.tape_plan import Plan, plan
from ostinato.graphs.backends.tape_program import Origin, Program
from ostinato.graphs.backends.tape_take import Take, difference, strangers, take
from ostinato.graphs.reasons import Reason
from ostinato.graphs.source_lines import raising_line
from ostinato.graphs.tree import flatten

if TYPE_CHECKING:
    from ostinato.graphs.backends.ending import Ending
    from ostinato.graphs.backends.memory import WorkingMemory
    from ostinato.graphs.observe import Observation, Refusal

Step = Callable[[], object]


class TapeRecording:
    """One recorded run on the CPU.

    Attributes:
        replay: Makes the recorded calls again. One thread at a time: replays share their memory.
    """

    __slots__ = ("_namespace", "bytes", "nodes", "replay", "result")

    def __init__(self, result: object, program: Program, planned: Plan) -> None:
        with torch.inference_mode():  # tensors of its kind pass the fewest dispatch keys
            writer = Writer(program, planned)
            self.replay = writer.write()
        self._namespace = writer.namespace
        self.result = result
        self.nodes = writer.calls
        self.bytes = _kept_bytes(program, planned)

    def enter(self) -> None:
        """Nothing to order: a CPU has one stream."""

    def repeat(self, times: int, ending: Ending) -> int:
        """Replay until `ending`: looking between two replays costs nothing here."""
        return replay_in_turn(self.replay, times, ending)

    def release(self) -> None:
        self.replay = _replay_released
        self.result = None
        self._namespace.clear()


def _replay_released() -> None:
    raise InternalError(
        "a released recording was asked to replay",
        code="OST1902",
        remedy="report it with the text of the error",
    )


class TapeBackend:
    """Records steps on the CPU."""

    @property
    def name(self) -> str:
        return "tape"

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
    ) -> TapeRecording:
        """Warm `step` up, then record one run of it; see `Backend.record`.

        What is dropped inside a run lies in an arena of a few MB, so nothing is shared.
        """
        if observation.refusals:
            raise _refused(observation.refusals[0])
        try:
            return self._record(step, inputs, device, warmups, observation, restore)
        except BaseException as error:
            restore()
            if isinstance(error, CaptureError) or not isinstance(error, Exception):
                raise
            raise _failed(error) from error

    def _record(
        self,
        step: Step,
        inputs: Sequence[Tensor],
        device: torch.device,
        warmups: int,
        observation: Observation,
        restore: Callable[[], None],
    ) -> TapeRecording:
        rehearsal: Take | None = None
        for left in range(warmups, 0, -1):
            restore()
            if left == 1:  # the last warm-up shows whether two runs are alike
                rehearsal = take(step, inputs, device)
            else:
                step()
        restore()
        recorded = take(step, inputs, device)
        if rehearsal is not None:
            refusal = difference(recorded, rehearsal)
        else:
            leaves = [leaf for leaf in flatten(observation.result)[0] if isinstance(leaf, Tensor)]
            refusal = strangers(recorded, observation.externals, leaves)
        for found in (*recorded.refusals, *([refusal] if refusal else [])):
            raise _refused(found)
        return TapeRecording(recorded.result, recorded.program, plan(recorded.program))

    def time_us(
        self,
        run: Callable[[], object],
        *,
        before: Callable[[], None],
        device: torch.device,
        repeats: int,
    ) -> float:
        """Return the median time of `run` in microseconds; see `Backend.time_us`."""
        times = []
        for repeat in range(repeats + 1):
            before()
            start = perf_counter()
            run()
            if repeat:
                times.append(perf_counter() - start)
        return median(times) * 1e6

    def fill(self, statics: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Copy each given tensor into its static twin."""
        # In inference mode neither a gradient nor the kind of the static tensor is in the way.
        # torch's own guard takes three microseconds less per call than `torch.inference_mode()`.
        with torch._C._InferenceMode(True):
            if len(statics) == 1:
                statics[0].copy_(given[0])
            elif statics:
                torch._foreach_copy_(list(statics), list(given))


def backend() -> TapeBackend:
    """Return the tape."""
    return _BACKEND


_BACKEND = TapeBackend()


def _refused(refusal: Refusal) -> CaptureError:
    where = f" at {refusal.where}" if refusal.where else ""
    return CaptureError(
        f"{refusal.op}{where} cannot be recorded: {refusal.detail}",
        code="OST1101",
        remedy=f"change that line as `ostinato explain {refusal.reason}` shows, or run it eagerly",
        reason=str(refusal.reason),
    )


def _failed(error: Exception) -> CaptureError:
    where = raising_line(error.__traceback__)
    at = f" at {where}" if where else ""
    return CaptureError(
        f"the step failed{at} while it was recorded: {type(error).__name__}: {error}",
        code="OST1101",
        remedy="make the step run twice in a row on the same inputs, or run it eagerly",
        reason=str(Reason.CAPTURE_ERROR),
    )


def _kept_bytes(program: Program, planned: Plan) -> int:
    """Bytes that the recording holds: results, constants, the arena, and what a replay makes."""
    kept = sum(
        region.nbytes
        for region in program.regions
        if region.storage is not None and region.origin is not Origin.OUTSIDE
    )
    return kept + planned.arena_bytes + planned.fresh_bytes
