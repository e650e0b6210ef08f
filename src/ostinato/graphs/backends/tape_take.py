"""One recorded run of a step, and whether it can stand for the runs to come.

A recording freezes what Python decides. Two takes of the same step that differ in their calls, or
in the outside memory that they read, show that Python state moves from run to run: a replay would
be stale. The comparison also finds tensors made unseen, by code that makes no aten call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.graphs.backends.tape_program import Call, Program
from ostinato.graphs.backends.tape_record import Recorder
from ostinato.graphs.observe_capturing import as_if_capturing
from ostinato.graphs.observe_compiled import compiled_code_runs_eagerly
from ostinato.graphs.observe_draws import is_same
from ostinato.graphs.observe_fast_paths import watched_as_if_plain
from ostinato.graphs.observe_host import HostWatcher
from ostinato.graphs.observe_notes import Refusal
from ostinato.graphs.reasons import Reason
from ostinato.graphs.tree import flatten

_UNSEEN = "a tensor is used that was made by an earlier run, or made unseen"
_MADE_INSIDE = (
    "a run that makes a Parameter makes it unseen; use the tensor that it is made of, or make it "
    "once outside the function"
)


@dataclass(frozen=True, slots=True)
class Take:
    """A recorded run.

    Attributes:
        outside: Tensors that the run took from outside, inputs excluded.
        unseen: Tensors in the result that no call of the run returned or took.
    """

    result: object
    program: Program
    refusals: list[Refusal]
    outside: list[Tensor]
    unseen: list[Tensor]

    def first_use_of(self, tensor: Tensor) -> str | None:
        """Return the user's line of the first call that takes the memory of `tensor`."""
        memory = tensor.untyped_storage().data_ptr()
        for call in self.program.calls:
            for value in call.taken():
                storage = self.program.regions[self.program.region_of(value)].storage
                if storage is not None and storage.data_ptr() == memory:
                    return call.where
        return None


def take(step: Callable[[], object], inputs: Sequence[Tensor], device: torch.device) -> Take:
    """Run `step` once and record it."""
    recorder = Recorder(inputs)
    with ExitStack() as watching:
        watching.enter_context(compiled_code_runs_eagerly())
        watching.enter_context(as_if_capturing())
        watching.enter_context(watched_as_if_plain())
        watching.enter_context(HostWatcher(recorder.notes, device))
        watching.enter_context(recorder)
        result = step()
    leaves = [leaf for leaf in flatten(result)[0] if isinstance(leaf, Tensor)]
    unseen = [leaf for leaf in leaves if not recorder.knows(leaf)]
    program = recorder.finish()
    return Take(result, program, recorder.notes.refusals, recorder.outside, unseen)


def difference(recorded: Take, earlier: Take) -> Refusal | None:
    """Return how a run differs from the run before it, or None if it can stand for others."""
    calls = zip(recorded.program.calls, earlier.program.calls, strict=False)
    for call, before in calls:
        if not _same_call(call, before):
            return _changed(call, "the same step made another call when it ran again")
    if len(recorded.program.calls) != len(earlier.program.calls):
        longer = max(recorded, earlier, key=lambda t: len(t.program.calls)).program.calls
        shorter = min(len(recorded.program.calls), len(earlier.program.calls))
        return _changed(longer[shorter], "one run of the step made this call and another did not")
    return strangers(recorded, earlier.outside, earlier.unseen)


def strangers(
    recorded: Take, outside: Iterable[Tensor], unseen: Iterable[Tensor]
) -> Refusal | None:
    """Return the first tensor of a run that the run before it did not have, or None."""
    for now, before in ((recorded.outside, outside), (recorded.unseen, unseen)):
        known = {tensor.untyped_storage().data_ptr() for tensor in before}
        for tensor in now:
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in known:
                kind = "Parameter" if isinstance(tensor, Parameter) else "tensor"
                return Refusal(
                    Reason.PYTHON_SIDE_EFFECT,
                    f"a {kind} of shape {tuple(tensor.shape)}",
                    recorded.first_use_of(tensor),
                    _MADE_INSIDE if kind == "Parameter" else _UNSEEN,
                )
    return None


def _changed(call: Call, detail: str) -> Refusal:
    return Refusal(Reason.PYTHON_SIDE_EFFECT, str(call.func), call.where, detail)


def _same_call(one: Call, other: Call) -> bool:
    return one.func is other.func and _same((one.args, one.kwargs), (other.args, other.kwargs))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, torch.Generator) and isinstance(other, torch.Generator):
        return is_same(one, other)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)
