"""Before a recording is used: how its outputs are cut, and that it computes what eager does.

A recording that does nothing, or that lets padding into the result, must never be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ostinato.graphs.agreement import disagreement
from ostinato.graphs.backends.base import Recording
from ostinato.graphs.compared_sizes import ComparedSizes
from ostinato.graphs.extents import (
    BranchesOnSize,
    Extent,
    Undetermined,
    extents_and_one,
    observed_extents,
)
from ostinato.graphs.interrupts import run_interruptibly
from ostinato.graphs.job import Bench, Job, Refused
from ostinato.graphs.observe import Observation
from ostinato.graphs.other_values import leak
from ostinato.graphs.outputs import HandOut
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signing import close_call
from ostinato.graphs.tree import flatten

Extents = list[tuple[Extent, ...] | None]


def fake_extents(bench: Bench) -> tuple[Extents | None, str]:
    """Find how the outputs follow the bucketed sizes: declared, or by runs on fake tensors.

    Returns:
        None for extents that need a result to look at; and what is against calls of size 1.
    """
    job = bench.job
    if not job.axes:
        return [], ""
    if len(job.declared_axes) == len(job.axes):
        return None, ""
    known = job.rules.find(job.kind)
    if known is not None:
        return known
    args, kwargs = close_call(job.signature.structure, job.leaves)
    try:
        found = extents_and_one(job.fn, args, kwargs, job.axes)
        job.rules.keep(job.kind, found)
        return found
    except BranchesOnSize as branches:
        raise Refused(Reason.BRANCHES_ON_SIZE, str(branches)) from branches
    except Undetermined as undetermined:
        # Two real runs fit any straight line, so they prove nothing where fake ones showed a bend.
        is_bend = undetermined.ran or job.declared_axes
        if is_bend or all(fit.real == fit.bucket for fit in job.fits):
            raise Refused(
                Reason.OUTPUT_SIZE_UNKNOWN,
                str(undetermined),
                # At size 1 a function may be unlike itself at every other size.
                is_final=undetermined.ran and 1 not in job.sizes,
            ) from undetermined
        is_one_known = 1 in job.sizes or not any(axis.serves_one for axis in job.axes)
        return None, "" if is_one_known else f"{undetermined}, so its result at size 1 is unknown"


def run_extents(job: Job, found: Extents | None, recorded: object, served: object) -> Extents:
    """Settle the same with two real runs: the eager one, and the recorded one at bucket size.

    Args:
        found: By runs on fake tensors; what is declared goes first.
    """
    bucket_sizes = _bucket_sizes(job)
    if job.cuts is not None:
        return _declared(job, recorded, bucket_sizes, found)
    if found is not None:
        return found
    try:
        return observed_extents(job.sizes, served, bucket_sizes, recorded)
    except Undetermined as undetermined:
        raise Refused(Reason.OUTPUT_SIZE_UNKNOWN, str(undetermined)) from undetermined


def _bucket_sizes(job: Job) -> tuple[int, ...]:
    buckets = {fit.leaf: fit.bucket for fit in job.fits}
    return tuple(buckets[axis.leaves[0][0]] for axis in job.axes)


def _declared(
    job: Job, recorded: object, bucket_sizes: tuple[int, ...], found: Extents | None
) -> Extents:
    leaves, structure = flatten(recorded)
    declared = {(path, axis): dim for axis, path, dim in job.cuts or ()}
    unknown = {path for path, _ in declared} - set(structure.paths)
    if unknown:
        raise Refused(
            Reason.OUTPUT_SIZE_UNKNOWN,
            f"cut names the output {sorted(unknown)[0]!r}; there are {', '.join(structure.paths)}",
        )
    extents: Extents = []
    fixed = (0,) * len(job.axes)
    for index, (leaf, path) in enumerate(zip(leaves, structure.paths, strict=True)):
        if not isinstance(leaf, Tensor):
            extents.append(None)
            continue
        known = (found[index] if found else None) or [Extent(0, fixed)] * leaf.dim()
        whole = []
        for size, extent in zip(leaf.shape, known, strict=True):
            follows = tuple(
                0 if axis in job.declared_axes else times
                for axis, times in enumerate(extent.per_axis)
            )
            whole.append(Extent(size - Extent(0, follows).at(bucket_sizes), follows))
        for axis in range(len(job.axes)):
            dim = declared.get((path, axis))
            if dim is not None:
                _check_dim(dim, leaf, path)
                whole[dim] = Extent(0, tuple(int(k == axis) for k in range(len(job.axes))))
        extents.append(tuple(whole))
    return extents


def _check_dim(dim: int, leaf: Tensor, path: str) -> None:
    if not -leaf.dim() <= dim < leaf.dim():
        raise Refused(
            Reason.OUTPUT_SIZE_UNKNOWN,
            f"cut names dim {dim} of the output {path!r}, which has {leaf.dim()} dimensions",
        )


def hand_out_of(
    bench: Bench, recording: Recording, observation: Observation, extents: Extents
) -> HandOut:
    """Decide what a call of this recording gets back."""
    return HandOut(
        recording.result,
        bench.inputs.tensors,
        bench.inputs.leaf_of,
        observation.externals,
        extents if bench.job.axes else None,
        frozenset(fit.leaf for fit in bench.job.fits),
        observation.result,
        bench.job.leaves,
        bench.job.watch.tensors,
    )


def check(
    bench: Bench,
    recording: Recording,
    hand_out: HandOut,
    observation: Observation,
    eager: object,
) -> frozenset[int]:
    """Replay once over emptied outputs and compare with the eager answer; return written inputs."""
    recording.enter()
    for static in hand_out.made:
        if static.layout is torch.strided and torch._debug_has_internal_overlap(static) == 0:
            static.zero_()  # a replay that does nothing must not pass
    bench.restore()  # afterwards: an output may be a view of a static input
    given = bench.job.leaves
    recording.replay()
    written = observation.written_inputs | _written_unseen(bench, observation)
    if not observation.draws:
        mine, structure = flatten(hand_out.own(given, bench.job.sizes))
        theirs, expected = flatten(eager)
        if structure != expected:
            raise Refused(Reason.MISMATCH, "the recorded run returned another structure")
        found = disagreement(mine, theirs, structure.paths)
        is_padded = any(fit.real < fit.bucket for fit in bench.job.fits)
        if found:
            raise Refused(Reason.PADDING_LEAKS if is_padded else Reason.MISMATCH, found)
        if is_padded and not (written or observation.written_externals):
            _check_other_values(bench, recording, hand_out)
    bench.inputs.forget_padding()
    return written


def compared_sizes(job: Job, observation: Observation, *, writes: bool) -> ComparedSizes | None:
    """Return what `check` has shown of the padding; None where there can be none.

    Args:
        writes: Whether the run writes state or inputs: those only a replay compares.
    """
    if not job.axes:
        return None
    known = ComparedSizes(_bucket_sizes(job), can_tell=not observation.draws)
    if not writes:
        known.note(job.sizes)
    return known


def _check_other_values(bench: Bench, recording: Recording, hand_out: HandOut) -> None:
    """Compare once more on values that the padding would show beside: see `other_values.py`."""
    job = bench.job

    def replay(leaves: Sequence[object]) -> Sequence[object]:
        bench.inputs.fill(leaves)
        recording.replay()
        return flatten(hand_out.own(leaves, job.sizes))[0]

    def eager(leaves: Sequence[object]) -> object:
        args, kwargs = close_call(job.signature.structure, leaves)
        return run_interruptibly(job.fn, args, kwargs)

    try:
        found = leak(job.leaves, [fit.leaf for fit in job.fits], replay, eager)
    finally:
        bench.restore()
    if found:
        raise Refused(Reason.PADDING_LEAKS, found)


def _written_unseen(bench: Bench, observation: Observation) -> frozenset[int]:
    """Inputs that changed though no call that torch dispatches wrote them: raw kernels do that."""
    if bench.job.backend.name == "tape":
        return frozenset()
    kept = bench.saved_inputs.contents()
    return frozenset(
        index
        for index, static in enumerate(bench.inputs.tensors)
        if index not in observation.written_inputs
        and id(static) in kept
        and not torch.equal(static, kept[id(static)])
    )
