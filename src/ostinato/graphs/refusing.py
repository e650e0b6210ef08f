"""What is seen before a call and in a run of it that no recording could hold, or would not repeat.

`capture.py` asks at each of its steps. Each question raises `Refused`, with a reason for people.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.class_name import class_name
from ostinato.graphs.agreement import other_layout
from ostinato.graphs.backends.base import Recording
from ostinato.graphs.effects import Effect
from ostinato.graphs.foreign import ALIASES, Foreign
from ostinato.graphs.job import Bench, Job, Refused
from ostinato.graphs.nodes import hidden_in
from ostinato.graphs.observe import Observation
from ostinato.graphs.reasons import Reason
from ostinato.graphs.tree import flatten, opened


def refuse_attributes(job: Job) -> None:
    """Refuse a tensor with an attribute that the code may read: its static twin has none."""
    for leaf, path in zip(job.leaves, job.signature.structure.paths, strict=True):
        for name in sorted(vars(leaf)) if isinstance(leaf, Tensor) else ():
            if not job.watch.found.may_read(name):
                continue
            detail = f"{path} has an attribute {name!r}, and the code may read one of that name"
            raise Refused(Reason.UNSUPPORTED_INPUT, detail, is_final=False)


def refuse_hidden(job: Job) -> None:
    """Refuse what the code may ask of an argument that is not there in a rebuilt one."""
    args, kwargs = job.call
    names = job.signature.structure.names
    for name, value in zip(names, (*args, *kwargs.values()), strict=True):
        for path, each in opened(value, name):
            hidden = hidden_in(each)
            for asked in (hidden, hidden.lstrip("_"), "is_fast") if hidden else ():
                if job.watch.found.may_read(asked):
                    told = f"{path} is a {class_name(each)}, and the code may read its {asked!r}"
                    raise Refused(Reason.UNSUPPORTED_INPUT, told, is_final=False)


def refuse_effects(job: Job, found: list[Effect], where: str | None = None) -> None:
    """Refuse what a run does in Python; `where` is the line, if no effect knows its own."""
    if found:
        detail = "; ".join(dict.fromkeys(effect.text for effect in found[:3]))
        place = next((effect.where for effect in found if effect.where), where)
        if place:
            detail += f", at {place}"
        # Never for ever: a cache may be built on first use, and another thread may have done it.
        raise Refused(
            Reason.PYTHON_SIDE_EFFECT, detail, is_final=False, is_first=not job.ran_before
        )


def refuse_refusals(observation: Observation) -> None:
    """Refuse the first thing that no recording could hold."""
    if observation.refusals:
        first = observation.refusals[0]
        where = f" at {first.where}" if first.where else ""
        # Another thread may have seeded a default generator meanwhile.
        is_final = first.reason is not Reason.PYTHON_SIDE_EFFECT
        raise Refused(first.reason, f"{first.op}{where}: {first.detail}", is_final=is_final)


def refuse_gradients(result: object) -> None:
    """Refuse a result that somebody may want to differentiate."""
    if torch.is_grad_enabled() and any(
        isinstance(leaf, Tensor) and leaf.requires_grad for leaf in flatten(result)[0]
    ):
        raise Refused(
            Reason.REQUIRES_GRAD,
            "the result requires gradients, and a replay has no autograd graph",
            is_final=False,
        )


def refuse_aliases(job: Job, bench: Bench, observation: Observation) -> None:
    """Refuse arguments that share memory with what the function writes, or it with theirs."""
    written = frozenset(bench.inputs.leaf_of[index] for index in observation.written_inputs)
    foreign = Foreign(observation.externals, observation.written_externals, written)
    if foreign.meets(job.leaves):
        raise Refused(Reason.UNSUPPORTED_INPUT, ALIASES, is_final=False)


def refuse_other_layout(job: Job, recording: Recording, result: object) -> None:
    """A recorded run that chose other kernels shows it; in a bucket the sizes differ anyway."""
    mine, structure = flatten(recording.result)
    theirs, expected = flatten(result)
    if not job.fits and structure == expected:
        found = other_layout(mine, theirs, structure.paths)
        if found:
            raise Refused(Reason.MISMATCH, found)
