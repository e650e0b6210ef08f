"""What is to be recorded, what it is laid out on, and what came of it. See `capture.make`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch

from ostinato.graphs.backends.base import Backend
from ostinato.graphs.backends.memory import WorkingMemory
from ostinato.graphs.buffers import Fit, StaticInputs
from ostinato.graphs.extents import Axis, Extents
from ostinato.graphs.fitting import Call
from ostinato.graphs.graph import Graph
from ostinato.graphs.interrupts import run_interruptibly
from ostinato.graphs.reasons import Reason
from ostinato.graphs.sharing import repeats
from ostinato.graphs.signature import Signature, TensorSpec
from ostinato.graphs.signing import close_call
from ostinato.graphs.state import RandomState, TensorState
from ostinato.graphs.tree import LEAF, flatten, opened
from ostinato.graphs.watch import Watch

Kind = tuple[object, ...]
_MOST_RULES = 256


class Rules:
    """How the outputs of one callable follow the bucketed sizes, by kind of call.

    Finding out takes several runs on fake tensors, longer than all the rest of a recording; one
    answer holds for every bucket.
    """

    def __init__(self) -> None:
        self._found: dict[Kind, tuple[Extents, str]] = {}

    def find(self, kind: Kind) -> tuple[Extents, str] | None:
        """Return the rule, and what is against calls of size 1, if they are known."""
        return self._found.get(kind)

    def keep(self, kind: Kind, found: tuple[Extents, str]) -> None:
        """Remember a rule."""
        if len(self._found) >= _MOST_RULES:
            self._found = {}
        self._found[kind] = found


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be recorded.

    Attributes:
        fn: The user's callable.
        signature: The situation.
        call: The caller's own arguments.
        leaves: Leaves of the call.
        fits: Its bucketed leaves.
        axes: Bucketed dimensions that vary together.
        serve: Whether the call is to be answered; False for `warm`, which changes nothing.
        warmups: Runs still wanted before the recorded one.
        ran_before: Whether this signature has run eagerly before.
        measure: Whether replay and eager are to be timed carefully.
        epoch: How often all recordings had to go before.
        rules: What is known of how outputs follow the bucketed sizes.
        scratch: Memory (by `storage_id`) that is neither saved nor put back.
        memory: Working memory that the recording shares with others; None for its own.
    """

    fn: Callable[..., Any]
    signature: Signature
    graph_id: str
    call: Call
    leaves: Sequence[object]
    fits: tuple[Fit, ...]
    axes: tuple[Axis, ...]
    watch: Watch
    backend: Backend
    device: torch.device
    serve: bool
    warmups: int
    ran_before: bool
    measure: bool
    epoch: int
    rules: Rules
    scratch: frozenset[int]
    memory: WorkingMemory | None

    @property
    def cuts(self) -> list[tuple[int, str, int]] | None:
        """Declared `(axis, output path, dimension that follows it)`; None: to be found out."""
        declared = [(self._axis_of(fit), fit.cut) for fit in self.fits if fit.cut is not None]
        if not declared:
            return None
        return [(axis, path, dim) for axis, cut in declared for path, dim in cut.items()]

    @property
    def declared_axes(self) -> frozenset[int]:
        """Axes for which something was declared, be it that nothing follows them."""
        return frozenset(self._axis_of(fit) for fit in self.fits if fit.cut is not None)

    def _axis_of(self, fit: Fit) -> int:
        where = (fit.leaf, fit.dim)
        return next(i for i, axis in enumerate(self.axes) if where in axis.leaves)

    @property
    def kind(self) -> Kind:
        """What all calls share whose outputs follow their sizes by one rule: all but the sizes.

        A size of 1 is a kind of its own, and so are calls that share their bucket with one.
        """
        specs: list[object] = list(self.signature.leaves)
        for fit in self.fits:
            spec = specs[fit.leaf]
            assert isinstance(spec, TensorSpec)
            shape = tuple(None if dim == fit.dim else n for dim, n in enumerate(spec.shape))
            specs[fit.leaf] = (shape, *spec[1:])
        ones = tuple((axis.size == 1, axis.serves_one) for axis in self.axes)
        signed = self.signature
        return (self.epoch, signed.structure, tuple(specs), signed.together, signed.mode,
                signed.training, ones)  # fmt: skip

    @property
    def sizes(self) -> tuple[int, ...]:
        """Real size of each axis."""
        return tuple(axis.size for axis in self.axes)


@dataclass(slots=True)
class Made:
    """What came of a job.

    Attributes:
        result: The eager answer; None for `warm`.
        graph: The recording, or None.
        reason: Why there is none.
        detail: One sentence for people.
        is_final: Whether asking again would give the same answer.
        is_first: Whether the first run of a signature was the trouble: the next may be no trouble.
        is_unanswered: Whether the call has not been answered, though it was to be.
    """

    result: object = None
    graph: Graph | None = None
    reason: Reason | None = None
    detail: str = ""
    is_final: bool = True
    is_first: bool = False
    is_unanswered: bool = False

    def take(self, refused: Refused) -> None:
        """Note why there is no recording."""
        self.reason, self.detail = refused.reason, refused.detail
        self.is_final, self.is_first = refused.is_final, refused.is_first


class Refused(Exception):
    """A recording cannot be made; carries why. Never leaves `capture.make`."""

    def __init__(
        self, reason: Reason, detail: str, *, is_final: bool = True, is_first: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.is_final = is_final
        self.is_first = is_first


@dataclass(slots=True)
class Bench:
    """Everything laid out for one recording."""

    job: Job
    inputs: StaticInputs
    started: float
    saved_inputs: TensorState = field(default_factory=lambda: TensorState(()))
    before: Sequence[TensorState | RandomState] = ()
    eager_us: float = 0.0
    given: Call = ((), {})

    def step(self) -> object:
        args, kwargs = self.given = close_call(self.job.signature.structure, self.inputs.leaves)
        return run_interruptibly(self.job.fn, args, kwargs)

    def changed_containers(self) -> str | None:
        """Say which list, dict or object among the arguments the latest step changed, if any."""
        args, kwargs = self.given
        names = self.job.signature.structure.names
        nodes: list[object] = [self]
        at = 0
        for name, child, value in zip(
            names, self.job.signature.structure.children, (*args, *kwargs.values()), strict=True
        ):
            end = at + len(child.paths)
            leaves, structure = ([value], LEAF) if child.kind is None else flatten(value, nodes)
            same = len(leaves) == end - at and all(map(is_, leaves, self.inputs.leaves[at:end]))
            if structure != child or not same:
                return f"it changes the {type(value).__name__} given as {name!r}"
            at = end
        if repeats(nodes) != self.job.signature.structure.shared:
            return "it puts one list, dict or object among the arguments in the place of another"
        return None

    def returned_container(self, result: object) -> str | None:
        """Say which list, dict or object among the arguments the latest step returned, if any."""
        args, kwargs = self.given
        names = self.job.signature.structure.names
        given = {
            id(each): f"{name}.{path}" if path else name
            for name, value in zip(names, (*args, *kwargs.values()), strict=True)
            for path, each in opened(value)
            if not isinstance(each, tuple)  # nobody can change one
        }
        for _, each in opened(result):
            if id(each) in given:
                return (
                    f"it returns the {type(each).__name__} given as {given[id(each)]!r} itself, "
                    "and a replay would return a copy: return a new one"
                )
        return None

    def restore(self) -> None:
        """Put inputs, written tensors and random state back to the moment before the call."""
        self.saved_inputs.restore()
        for state in self.before:
            state.restore()
