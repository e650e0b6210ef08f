"""What a runner remembers of one signature: its calls, its recording, or why it has none."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ostinato.graphs.graph import Graph
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signature import ObjectSpec, Signature, TensorSpec

_LONGEST_WAIT = 1024


@dataclass(slots=True, eq=False)
class Entry:
    """One signature.

    Attributes:
        calls: Calls so far, replays excluded (those are counted by the graph).
        admit_at: The call at which to record.
        hits_before: Replays by recordings it has lost.
        graph: Its recording, if it has one.
        refusal: Why it has none and will get none; None while it may.
        detail: One sentence to the refusal, or to what it waits for.
        waiting_for: Why it has no recording yet.
        losses: Recordings lost, and attempts that failed.
        nodes: Of its latest recording.
        needs: Bytes, and microseconds saved, of a recording that did not fit the budget.
        recaptures_for: Why the last recording was lost, until a new one is made.
        building: Held while a thread records, so that no second one does.
    """

    signature: Signature
    admit_at: int
    calls: int = 0
    hits_before: int = 0
    graph: Graph | None = None
    refusal: Reason | None = None
    detail: str = ""
    waiting_for: Reason = Reason.NOT_ADMITTED_YET
    losses: int = 0
    recaptures_for: Reason | None = None
    nodes: int | None = None
    needs: tuple[int, float] | None = None
    building: threading.Lock = field(default_factory=threading.Lock)

    @property
    def all_calls(self) -> int:
        """Calls of any outcome."""
        return self.calls + self.hits_before + (self.graph.hits if self.graph else 0)

    def refuse(self, reason: Reason, detail: str) -> None:
        """Do not record this signature again, unless what it reads changes."""
        self.refusal = reason
        self.detail = detail
        self.losses += 1

    def reconsider(self) -> None:
        """Let a refused signature try again: at once the first time, later less and less.

        A function that changes its own attributes on every call is reconsidered on every call.
        """
        if self.refusal is not None:
            self.waiting_for, self.refusal = self.refusal, None
            self.admit_at = self.calls + self._wait()

    def _wait(self) -> int:
        return 0 if self.losses <= 1 else min(2 ** (self.losses - 1), _LONGEST_WAIT)

    def wait_for_next(self, reason: Reason, detail: str) -> None:
        """Try again at the next call: the first run of a signature may be unlike all others."""
        self.waiting_for = reason
        self.detail = detail
        self.admit_at = self.calls + 1

    def postpone(self, reason: Reason, detail: str) -> None:
        """Wait twice as long as the last time before the next try."""
        self.waiting_for = reason
        self.detail = detail
        self.losses += 1
        self.admit_at = self.calls + min(2**self.losses, _LONGEST_WAIT)

    def lose(self, reason: Reason) -> Graph | None:
        """Give the recording up; it may be made anew at once the first time, later rarely."""
        graph, self.graph = self.graph, None
        if graph is not None:
            self.hits_before += graph.hits
            self.recaptures_for = self.waiting_for = reason
            self.detail = ""
            self.losses += 1
            self.admit_at = self.calls + self._wait()
        return graph


def unfit_at_sight(signature: Signature) -> tuple[Reason, str] | None:
    """Say why a call with this signature cannot be recorded, whatever the callable does."""
    names = signature.structure.paths
    devices = set()
    for name, spec in zip(names, signature.leaves, strict=True):
        if isinstance(spec, TensorSpec):
            devices.add(spec.device)
            if 0 in spec.shape:
                return Reason.EMPTY_BATCH, f"{name} has shape {list(spec.shape)}"
        elif isinstance(spec, ObjectSpec) and (unfit := _unfit_object(name, spec.value)):
            return unfit
    if len(devices) > 1:
        where = " and ".join(sorted(map(str, devices)))
        return Reason.SEVERAL_DEVICES, f"the arguments lie on {where}"
    return None


def _unfit_object(name: str, value: object) -> tuple[Reason, str] | None:
    if isinstance(value, Tensor):  # a subclass, a sparse or a quantised tensor
        kind = type(value).__name__ if value.layout is torch.strided else str(value.layout)
        return Reason.UNSUPPORTED_INPUT, f"{name} is a {kind}, and only plain tensors are copied"
    if type(value).__module__ == "numpy":
        return (
            Reason.UNSUPPORTED_INPUT,
            f"{name} is a numpy array, whose contents a recording would freeze",
        )
    return None
