"""What every recorder promises: CUDA graphs on a GPU, the tape on a CPU.

A backend knows nothing of signatures, buckets or budgets. It is given a step without arguments that
reads its inputs from fixed tensors, records one run of it, and replays that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ostinato.graphs.backends.ending import Ending
    from ostinato.graphs.backends.memory import WorkingMemory
    from ostinato.graphs.observe import Observation

Step = Callable[[], object]


class Recording(Protocol):
    """One recorded run.

    Attributes:
        result: What the step returned while it was recorded. After each `replay` its tensors hold
            the new values, at the same addresses.
        nodes: Kernels (CUDA) or aten calls (tape) in one replay.
        bytes: Memory that this recording alone keeps alive; the static inputs are not in it.
    """

    @property
    def result(self) -> object: ...
    @property
    def nodes(self) -> int: ...
    @property
    def bytes(self) -> int: ...

    def enter(self) -> None:
        """Order what follows on the caller's stream after the last use on another stream.

        Called before the static inputs are filled: fill, replay and hand-out are one use.
        """
        ...

    def replay(self) -> None:
        """Run the recorded work again on the caller's current stream, without waiting for it."""
        ...

    def repeat(self, times: int, ending: Ending) -> int:
        """Replay up to `times` times, by `ending` fewer; return the most that may have been.

        Where the device can look at `ending` by itself this is one launch. 0 times: only prepare.
        """
        ...

    def release(self) -> None:
        """Give the memory back. Safe to call twice; `replay` afterwards is an error."""
        ...


class Backend(Protocol):
    """Records steps on one kind of device."""

    @property
    def name(self) -> str: ...

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
    ) -> Recording:
        """Warm `step` up, then record one run of it.

        Args:
            inputs: The fixed tensors that `step` reads; the caller refills them before each replay.
            warmups: Runs before the recorded one, on the stream that records.
            observation: What an observed run of the same step did (writes, generators, devices).
            restore: Puts inputs, written tensors and random state back to the moment before the
                call; called before every run of `step`, the recorded one included.
            memory: Working memory to share; its lock is held. None: the recording has its own.

        Raises:
            CaptureError: OST1101, the step cannot be recorded; everything is undone.
        """
        ...

    def time_us(
        self,
        run: Callable[[], object],
        *,
        before: Callable[[], None],
        device: torch.device,
        repeats: int,
    ) -> float:
        """Return the median time of `run` in microseconds, the device's work included.

        Args:
            run: What to time.
            before: Called before every run, outside the timing: a step may move its own state on.
            device: Where the work happens.
            repeats: Timed runs; one more comes first and does not count.
        """
        ...

    def fill(self, statics: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Copy each given tensor into its static twin of the same shape, in few calls."""
        ...
