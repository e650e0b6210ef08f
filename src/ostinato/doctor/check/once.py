"""One run of a checked call under the runtime's own observers, on pretended tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from ostinato.doctor.check.assumed import Assumed
from ostinato.doctor.check.collected import Collected, Run
from ostinato.doctor.check.ending import process_goes_on
from ostinato.doctor.check.interrupted import raise_if_interrupted
from ostinato.doctor.check.line import lines_above
from ostinato.doctor.check.other_threads import threads_fail_quietly
from ostinato.doctor.check.placing import Placing
from ostinato.doctor.check.pretended import PretendedMode
from ostinato.doctor.check.target import Call
from ostinato.doctor.check.traced import Traced
from ostinato.graphs.effects import Effect, Effects
from ostinato.graphs.inline import recording_here
from ostinato.graphs.interrupts import run_interruptibly
from ostinato.graphs.observe import Observation, observe
from ostinato.graphs.reach import Reach, reach
from ostinato.graphs.tree import flatten

GPU = torch.device("cuda", 0)


def run_once(
    call: Call,
    mode: PretendedMode,
    current: Callable[[], int],
    onto: torch.device | None,
    collected: Collected,
    *,
    condition: bool,
) -> bool:
    """Run the call once and add what was seen; return whether the other way is worth a run.

    Args:
        onto: Where tensors that were made before the run are taken to lie; None: where they are.
        condition: Whether a condition that is read holds when it is asked first.
    """
    assumed = Assumed(mode, condition)
    traced = Traced(onto)
    placing = Placing(mode, assumed, current, onto, traced)
    with torch._C.DisableTorchFunction():
        leaves, structure = flatten([list(call.args), dict(call.kwargs)])
        leaves = [placing.placed(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = structure.unflatten(leaves)
    stopped: list[BaseException] = []

    def step() -> object:
        with process_goes_on() as asked, threads_fail_quietly():
            try:
                with placing, traced:
                    return run_interruptibly(call.fn, args, kwargs)
            except BaseException as error:  # noqa: BLE001 - whatever the call raises
                raise_if_interrupted(error)
                stopped.append(error)
                return None
            finally:
                stopped[:0] = asked[:1]

    mode.elsewhere.clear()
    found = reach(call.fn)
    held = list(found.tensors())
    if onto is not None:
        traced.weights, traced.placed = frozenset(map(id, held)), placing.placed
    observation, effects, told = _observed(step, leaves, found, mode, assumed)
    collected.add(
        Run(
            inputs=leaves,
            observation=observation,
            assumed=assumed,
            traced=traced,
            placing=placing,
            effects=effects,
            stopped=stopped[0] if stopped else None,
            told=told,
            elsewhere=list(mode.elsewhere),
            above=lines_above(),
            held=[] if onto is not None else held,
        )
    )
    return bool(assumed.conditions)


def _observed(
    step: Callable[[], object],
    leaves: list[Any],
    found: Reach,
    mode: PretendedMode,
    assumed: Assumed,
) -> tuple[Observation, list[Effect], list[str]]:
    """Run `step` as the runtime does before it records, and put back what it changed."""
    effects = Effects(found)
    random = torch.get_rng_state()
    try:
        with ExitStack() as stack:
            told = stack.enter_context(warnings.catch_warnings(record=True, action="always"))
            stack.enter_context(torch.no_grad())
            stack.enter_context(mode)
            stack.enter_context(assumed)
            stack.enter_context(recording_here())
            observation = observe(
                step,
                [leaf for leaf in leaves if isinstance(leaf, Tensor)],
                device=GPU,
                generators=[*found.generators, *_generators(leaves)],
                names=None if found.reads_any_name else found.names,
            )
            observation.restore()
            changed = [*Effects.foreseen(found), *effects.found()]
            effects.undo()
    finally:
        torch.set_rng_state(random)
    return observation, changed, [str(each.message) for each in told if _is_ours(each)]


def _generators(leaves: list[Any]) -> list[torch.Generator]:
    return [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]


def _is_ours(warning: warnings.WarningMessage) -> bool:
    return warning.category.__name__ == "OstinatoWarning"
