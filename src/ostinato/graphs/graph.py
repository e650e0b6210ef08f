"""One recording as the runner uses it: static inputs, the recorded run, outputs, and its history.

The five steps of a replay stand in `Graph.run`. Everything that decides whether a graph may be run
stands elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ostinato.graphs.backends.base import Recording
from ostinato.graphs.buffers import StaticInputs
from ostinato.graphs.compared_sizes import ComparedSizes
from ostinato.graphs.decision import Decision, Outcome
from ostinato.graphs.foreign import Foreign
from ostinato.graphs.outputs import HandOut
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signature import Signature
from ostinato.graphs.watch import Addresses, Change

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, eq=False)
class Graph:
    """A recording that serves one signature.

    Attributes:
        graph_id: Its name in reports, logs and events.
        signature: The situation it was recorded in.
        inputs: The fixed tensors it reads.
        recording: The recorded run.
        hand_out: What a call gets back.
        addresses: The outside tensors it reads, and where they were.
        written_inputs: Indices of the static inputs that a run writes to.
        written_externals: Outside tensors that a run writes to.
        generators: Private generators that a run draws from.
        draws: Whether a run draws random numbers.
        bytes: Device memory it keeps: its own and the static inputs'.
        build_seconds: Wall time of making it.
        eager_us, replay_us: Median time of one run each way, when it was made.
        unlike_at_one: Why it may not serve a bucketed size of 1; "" if it may.
        scratch: Memory (by `storage_id`) that is neither put back nor compared.
        generation: Runs so far; a lease on an earlier run is stale.
        hits: Calls it has answered.
        padding: Which padded sizes were compared with an eager run; None where nothing is bucketed.
        decision: What a replay of it is recorded as.
        foreign: What a call's tensors may not share memory with; None where nothing is written.
        needs_no_grad: Whether gradients are on where it is called: then a run turns them off.
    """

    graph_id: str
    signature: Signature
    inputs: StaticInputs
    recording: Recording
    hand_out: HandOut
    addresses: Addresses
    written_inputs: frozenset[int]
    written_externals: list[Tensor]
    generators: list[torch.Generator]
    draws: bool
    bytes: int
    build_seconds: float
    eager_us: float
    replay_us: float
    padding: ComparedSizes | None
    unlike_at_one: str = ""
    scratch: frozenset[int] = frozenset()
    generation: int = 0
    hits: int = 0
    is_released: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    decision: Decision = field(init=False)
    foreign: Foreign | None = field(init=False)
    needs_no_grad: bool = field(init=False)

    def __post_init__(self) -> None:
        # One object for all its replays: nothing is built on the path of a call.
        self.decision = Decision(Outcome.REPLAYED, None, self.graph_id)
        self.needs_no_grad = self.signature.mode.grad
        writes = self.written_inputs or self.written_externals
        self.foreign = (
            Foreign(
                self.addresses.tensors,
                self.written_externals,
                frozenset(self.inputs.leaf_of[index] for index in self.written_inputs),
            )
            if writes
            else None
        )

    @property
    def saved_us(self) -> float:
        """Time one replay saves against one eager run; never negative."""
        return max(self.eager_us - self.replay_us, 0.0)

    def trusts(self, sizes: tuple[int, ...]) -> bool:
        """Whether a call of these real sizes needs no comparison with an eager run."""
        return self.padding is None or self.padding.trusts(sizes)

    def moved(self) -> Change | None:
        """Say what became of the tensors that it reads, if a replay would read others."""
        if not self.addresses.hold():
            told = "a tensor that the recording reads was exchanged"
            return Change(Reason.WEIGHTS_MOVED, told)
        if self.needs_no_grad and not self.addresses.grads_hold():
            told = "a tensor that the recording reads requires gradients now"
            return Change(Reason.WEIGHTS_MOVED, told)
        return None

    def run(self, leaves: Sequence[object], sizes: Sequence[int], *, leased: bool) -> object:
        """Fill the static inputs, replay, and hand the outputs out. Hold `lock`.

        Args:
            leaves: Leaves of the call.
            sizes: Real size of each bucketed axis.
            leased: Hand out leases instead of copies.
        """
        if self.needs_no_grad and torch.is_grad_enabled():
            # As `torch.no_grad()`, without the three microseconds of a context.
            torch._C._set_grad_enabled(False)
            try:
                return self.run(leaves, sizes, leased=leased)
            finally:
                torch._C._set_grad_enabled(True)
        self.generation += 1  # first: a lease that is read meanwhile must find out
        self.recording.enter()
        self.inputs.fill(leaves)
        self.recording.replay()
        # Copies first: where there is no memory for them, the caller's tensors are untouched yet.
        if leased:
            result = self.hand_out.lease(leaves, sizes, self)
        else:
            result = self.hand_out.own(leaves, sizes)
        if self.written_inputs:
            self.inputs.write_back(leaves, self.written_inputs)
        return result

    @property
    def straight(self) -> Callable[[Any], object] | None:
        """Return `run` for one tensor that gives one, without a frame between; or None.

        Each function in between costs a fraction of a microsecond, and several of them after a
        launch has emptied the caches.
        """
        fill, own, recording = self.inputs.fill_one, self.hand_out.own_one, self.recording
        if fill is None or own is None or self.written_inputs or self.needs_no_grad or self.draws:
            return None
        enter = recording.enter

        def run(given: Any) -> object:
            self.generation += 1
            enter()
            fill(given)
            recording.replay()
            return own()

        return run

    def release(self) -> None:
        """Give the memory back; leases on it go stale. Safe to call twice."""
        with self.lock:
            if not self.is_released:
                self.is_released = True
                self.generation += 1
                self.recording.release()
