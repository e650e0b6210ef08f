"""Turn what the runs of one check saw into blockers, gaps, notes and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from ostinato.class_name import class_name
from ostinato.doctor.check.assumed import Assumed, NoEnd
from ostinato.doctor.check.estimate import Estimate, estimate
from ostinato.doctor.check.line import Line, is_raised_by_user, place_of, raised_line, said_place
from ostinato.doctor.check.one_way import branch_after, one_way_gaps
from ostinato.doctor.check.other_threads import UsedElsewhere, gaps_of_threads
from ostinato.doctor.check.placing import Placing
from ostinato.doctor.check.questions import Blocker, Gap, answered
from ostinato.doctor.check.rewrite import instead_of
from ostinato.doctor.check.traced import Traced
from ostinato.doctor.check.verdict import Checked
from ostinato.doctor.finding import Place
from ostinato.doctor.raised import text_of, words_of
from ostinato.graphs.effects import Effect
from ostinato.graphs.observe import Observation
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signature import ValueSpec
from ostinato.graphs.signing import value_spec
from ostinato.graphs.tree import flatten

_ON_A_GPU = "on a machine with a GPU: g = ostinato.graphed(fn); call it three times; print(g.last)"


@dataclass(slots=True)
class Run:
    """One run of the call, with all that watched it.

    Attributes:
        inputs: Leaves of the arguments.
        effects: What Python left behind.
        stopped: What the call raised.
        told: Warnings of what no replay repeats.
        elsewhere: What other threads did with tensors of the GPU.
        above: Lines of whoever asked for the check.
        held: Tensors that the callable holds, where they lie as they say.
    """

    inputs: list[object]
    observation: Observation
    assumed: Assumed
    traced: Traced
    placing: Placing
    effects: list[Effect]
    stopped: BaseException | None
    told: list[str]
    elsewhere: list[UsedElsewhere]
    above: frozenset[str]
    held: list[Tensor]


class Collected:
    """All runs of one check."""

    def __init__(self, target: str, device: torch.device, gpus: int = 1) -> None:
        self._target = target
        self._device = device
        self._gpus = gpus
        self._runs: list[Run] = []

    def add(self, run: Run) -> None:
        self._runs.append(run)

    @property
    def stopped_by_itself(self) -> BaseException | None:
        """What the call raised before any value had been assumed; None if nothing."""
        first = self._runs[0]
        is_open = first.assumed.lines or first.elsewhere or isinstance(first.stopped, NoEnd)
        return None if is_open else first.stopped

    def checked(self) -> Checked:
        """Return the result."""
        seen = [list(_grouped(self._blockers(run))) for run in self._runs]
        blockers = _merged(seen)
        gaps = dict.fromkeys(gap for run in self._runs for gap in _gaps(run))
        numbers = dict.fromkeys(line for run in self._runs for line in run.assumed.numbers)
        gaps |= dict.fromkeys(one_way_gaps(numbers))
        is_complete = any(run.stopped is None for run in self._runs)
        longest = max(self._runs, key=lambda run: len(run.traced.work))
        return Checked(
            target=self._target,
            blockers=blockers,
            gaps=tuple(gaps),
            notes=tuple(dict.fromkeys(note for run in self._runs for note in _notes(run))),
            answers=answered(blockers, tuple(gaps), _evidence(longest), is_complete),
            assumed=max(sum(run.assumed.lines.values()) for run in self._runs),
            estimate=_estimated(longest) if is_complete else None,
            pretended=str(self._device),
            torch=torch.__version__,
        )

    def _blockers(self, run: Run) -> Iterator[Blocker]:
        """Yield what stands in the way, in the order in which the runtime would refuse it."""
        yield from _of_inputs(run, self._device)
        chosen = {each.said: branch_after(each) for each in run.assumed.numbers if each}
        for refusal in run.observation.refusals:
            line = run.traced.lines.get(refusal.where or "")
            is_read = refusal.reason is Reason.HOST_SYNC and line is not None
            branch = chosen.get(line.said) if line and is_read else None
            asks = line is not None and (line.path, line.line) in run.placing.branches
            yield _blocker(
                refusal.reason,
                refusal.op,
                refusal.detail + (f"; it decides {_where(branch, line)}" if branch else ""),
                line,
                is_branch=is_read and (asks or branch is not None),
                place=None if refusal.where in run.above else said_place(refusal.where),
            )
        for op, line, text in run.assumed.mismatches:
            yield _blocker(Reason.SEVERAL_DEVICES, op, f"eager fails on a GPU too: {text}", line)
        for op, line, why in run.traced.hidden:
            yield _blocker(Reason.HOST_SYNC, op, f"inside its CUDA kernel {why}", line)
        for use in run.elsewhere:
            if use.is_read:
                detail = "another thread reads a tensor's value, so the host waits for it"
                yield _blocker(Reason.HOST_SYNC, str(use.func), detail, use.line)
        for draw in run.traced.alien:
            detail = f"it draws on {draw.device} from a generator on {draw.generator}"
            yield _blocker(Reason.UNREGISTERED_GENERATOR, draw.op, detail, draw.line)
        for line, has_graphs in run.traced.compiled.items():
            if has_graphs:
                detail = "the compiled part replays CUDA graphs of its own"
                yield _blocker(Reason.COMPILED_INSIDE, "torch.compile", detail, line)
        for used in sorted(run.observation.devices, key=str):
            if used != self._device:
                detail = self._elsewhere(used, run)
                yield _blocker(
                    Reason.SEVERAL_DEVICES, str(used), detail, run.traced.places.get(used)
                )
        for effect in run.effects:
            line = run.traced.lines.get(effect.where or "")
            place = None if line else said_place(effect.where)
            yield _blocker(
                Reason.PYTHON_SIDE_EFFECT, effect.name or "Python", effect.text, line, place=place
            )
        if run.stopped is None:
            yield from _of_outputs(run)
        elif is_raised_by_user(run.stopped) and not (run.assumed.lines or run.elsewhere):
            text = f"it raises {words_of(run.stopped)}"
            line = raised_line(run.stopped.__traceback__)
            yield _blocker(Reason.CAPTURE_ERROR, "raise", text, line)

    def _elsewhere(self, used: torch.device, run: Run) -> str:
        if used.type == "cuda" and used.index is not None and used.index >= self._gpus:
            number = f"{self._gpus} GPU{'s' if self._gpus > 1 else ''}"
            return f"there is no {used} with {number}; --gpus {used.index + 1} pretends it"
        if self._device not in run.observation.devices:
            return f"the call runs on {used}, and the check is for {self._device}"
        return f"the call runs on {used} besides {self._device}; a graph has one device"


def _blocker(
    reason: Reason,
    op: str,
    detail: str,
    line: Line | None,
    *,
    is_branch: bool = False,
    place: Place | None = None,
) -> Blocker:
    place = place_of(line) if line else place
    source = place.code if place else ""
    advice = instead_of(str(reason), op, is_branch=is_branch, source=source)
    return Blocker(str(reason), op, place, detail, advice, is_branch=is_branch)


def _where(branch: Place, read: Line | None) -> str:
    is_here = read is not None and branch.line == read.line
    return "which way the code goes" if is_here else f"the branch at {branch}"


def _of_inputs(run: Run, device: torch.device) -> Iterator[Blocker]:
    places = set()
    for leaf in run.inputs:
        if isinstance(leaf, Tensor):
            places.add(leaf.device)
            if leaf.numel() == 0:
                yield _blocker(
                    Reason.EMPTY_BATCH, "an argument", f"it has shape {list(leaf.shape)}", None
                )
            elif leaf.layout is not torch.strided:
                yield _blocker(
                    Reason.UNSUPPORTED_INPUT, "an argument", f"it is {leaf.layout}", None
                )
        elif type(leaf).__module__ == "numpy":
            detail = "it is a numpy array, whose contents a recording would freeze"
            yield _blocker(Reason.UNSUPPORTED_INPUT, "an argument", detail, None)
    held = {tensor.device for tensor in run.held if tensor.dim()}
    if len(places) > 1 or (places and device not in places and device in held):
        where = " and ".join(sorted(str(place) for place in places | (held & {device})))
        yield _blocker(
            Reason.SEVERAL_DEVICES, "the arguments", f"arguments and weights lie on {where}", None
        )


def _of_outputs(run: Run) -> Iterator[Blocker]:
    leaves, structure = flatten(run.observation.result)
    given = {id(leaf) for leaf in run.inputs}
    for leaf, path in zip(leaves, structure.paths, strict=True):
        if isinstance(leaf, Tensor):
            is_plain = leaf.layout is torch.strided and not leaf.is_nested
            if not is_plain:
                detail = f"{path or 'the result'} is no plain tensor: {leaf.layout}"
                yield _blocker(Reason.UNSUPPORTED_OUTPUT, "the result", detail, None)
        elif id(leaf) not in given and not isinstance(value_spec(leaf), ValueSpec):
            detail = f"{path or 'the result'} is of type {class_name(leaf)}, made anew by each run"
            yield _blocker(Reason.UNSUPPORTED_OUTPUT, "the result", detail, None)


def _grouped(blockers: Iterator[Blocker]) -> Iterator[Blocker]:
    """Count a line that does the same thing again once."""
    known: dict[tuple[object, ...], Blocker] = {}
    for each in blockers:
        key = _key(each)
        known[key] = replace(known[key], times=known[key].times + 1) if key in known else each
    for key, each in known.items():
        if each.op != "cpu" or not any(key != other and _at(other) == _at(key) for other in known):
            yield each


def _at(key: tuple[object, ...]) -> object:
    return key[1]


def _key(blocker: Blocker) -> tuple[object, ...]:
    place = blocker.place
    where = (place.path, place.line) if place is not None else blocker.op
    return blocker.reason, where, blocker.is_branch


def _merged(runs: Sequence[Sequence[Blocker]]) -> tuple[Blocker, ...]:
    """Join the ways through; what only one of them meets lies behind an assumption."""
    keys = [{_key(each) for each in run} for run in runs]
    merged: dict[tuple[object, ...], Blocker] = {}
    for run in runs:
        for each in run:
            everywhere = all(_key(each) in seen for seen in keys)
            merged.setdefault(_key(each), replace(each, behind_assumption=not everywhere))
    return tuple(merged.values())


def _gaps(run: Run) -> Iterator[Gap]:
    yield from gaps_of_threads(run.elsewhere)
    for copied in run.placing.deep_copies:
        what = "how copy.deepcopy of a tensor takes its memory, which there is none of here"
        place = place_of(copied) if copied else None
        yield Gap(what, place, "copy with x.clone(), and check again")
    error = run.stopped
    is_after = bool(run.assumed.lines or run.elsewhere)
    if error is None or (is_raised_by_user(error) and not is_after):
        return
    line = error.line if isinstance(error, NoEnd) else raised_line(error.__traceback__)
    place = place_of(line) if line else None
    text = text_of(error).strip().partition("\n")[0][:300]
    if isinstance(error, UnsupportedOperatorException) or "no fake impl" in text:
        settles = "register a fake implementation of the op (torch.library.register_fake), or "
        yield Gap(f"it cannot be run without contents: {text}", place, settles + _ON_A_GPU)
    elif isinstance(error, NoEnd) and not run.assumed.lines:
        yield Gap(f"the call cannot be judged: {text}", place, "check a call that comes to an end")
    elif run.assumed.lines:
        if isinstance(error, AssertionError) and line in run.assumed.conditions:
            return  # the assertion asked for the assumed answer: a read, told as such
        count = sum(run.assumed.lines.values())
        what = f"after {count} assumed value{'s' * (count != 1)} it raised"
        yield Gap(f"{what} {class_name(error)}: {text}", place, "change what was found first")
    elif run.elsewhere:
        what = f"without what another thread makes it raised {class_name(error)}: {text}"
        yield Gap(what, place, "change what was found first")
    else:
        yield Gap(f"it raised {class_name(error)}: {text}", place, _ON_A_GPU)


def _notes(run: Run) -> Iterator[str]:
    yield from run.told
    observation = run.observation
    if observation.has_collective:
        yield "processes exchange data: all of them must capture and replay alike"
    if observation.written_inputs:
        yield "it writes into its arguments: a replay writes into copies, which are copied back"
    for generator in sorted(run.traced.generators):
        yield f"it draws from a private generator on {generator}: register it with the graph"
    for line, has_graphs in run.traced.compiled.items():
        if not has_graphs:
            where = f" at {line.said}" if line else ""
            yield f"compiled code{where} was checked as it is written, uncompiled"


def _evidence(run: Run) -> dict[str, str]:
    traced = run.traced
    seen = {"devices": ", ".join(sorted(map(str, run.observation.devices)))}
    if traced.compiled:
        line = next(iter(traced.compiled))
        seen["compiled"] = f"compiled code is called at {line.said}" if line else "compiled code"
    if run.placing.dtype_reads:
        line = next(iter(run.placing.dtype_reads))
        where = line.said if line else "the code"
        seen["dtypes"] = f"{where} asks for a dtype under autocast: the answer is recorded"
    elif traced.autocast:
        line = next(iter(traced.autocast))
        seen["dtypes"] = (
            f"autocast inside, at {line.said if line else 'the call'}; no dtype is read"
        )
    if traced.draws:
        count = sum(traced.draws.values())
        whose = " and ".join(sorted(traced.generators)) or "the default generator"
        seen["generators"] = f"{count} draws, from {whose}"
    return seen


def _estimated(run: Run) -> Estimate | None:
    work = run.traced.work
    if not work:
        return None
    return estimate([(w.kernels, w.moved_bytes, w.flops, w.is_low_precision) for w in work])
