"""From facts to findings: which sightings hold, now that the whole project is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ostinato.doctor.lint.facts import Call, Function, Module, Pause, Scope, Sighting, Wait, Wants
from ostinato.doctor.lint.reaching import Reach
from ostinato.doctor.lint.resolving import Project
from ostinato.doctor.lint.values import Kind, Spot, Value

_DEEPEST = 3  # calls between a lock, or a coroutine, and the line that waits
_BLOCKING = frozenset({Pause.GPU, Pause.IO, Pause.SLEEP, Pause.MODEL})
_HELD = frozenset({Pause.GPU, Pause.IO, Pause.SLEEP, Pause.AWAIT, Pause.FILE, Pause.THREAD})

_EXPORTS = ("`.cpu()`", "`.tolist()`", "`.numpy()`")


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """One finding, before the file is looked at again for its words.

    Attributes:
        number: Such as 101.
        function: Dotted name of the function round it, without that of the module.
    """

    path: str
    spot: tuple[int, int, int, int]
    number: int
    function: str
    fact: str


def judge(modules: Iterable[Module]) -> list[Seen]:
    """Return the findings of a project, by file and line."""
    project = Project(modules)
    reach = Reach(project)
    reach.explore()
    found: dict[tuple[str, tuple[int, int, int, int], int], Seen] = {}
    judge_ = _Judge(project, reach)
    for function in project.functions.values():
        for seen in judge_.findings(function):
            found.setdefault((seen.path, seen.spot, seen.number), seen)
    return sorted(found.values())


@dataclass(frozen=True, slots=True)
class _Judge:
    project: Project
    reach: Reach

    def findings(self, function: Function) -> Iterator[Seen]:
        """Yield what holds of a function."""
        told = set()
        for sighting in function.sightings:
            if self._counts(function, sighting) and self._holds(function, sighting):
                told.add(sighting.spot)
                yield self._seen(function, sighting.code, sighting.spot, sighting.fact)
        yield from self._locks(function, told)
        if function.is_async:
            yield from self._coroutine(function)

    def _seen(self, function: Function, code: int, spot: Spot, fact: str) -> Seen:
        module = self.project.module_of[function.name]
        place = (spot.line, spot.column, spot.end_line, spot.end_column)
        short = function.name.removeprefix(f"{module.name}.")
        return Seen(module.path, place, code, short, fact)

    def _counts(self, function: Function, sighting: Sighting) -> bool:
        if sighting.scope is Scope.ALWAYS:
            return True
        if sighting.scope is Scope.LOOP:
            return bool(sighting.loops) and not function.trains and not function.once
        if sighting.scope is Scope.WORKER_POOL:
            return self._pool_runs_model(function)
        if sighting.scope in self.reach.scopes_of(function):
            return True
        loops = self.reach.step_loops.get(function.name, frozenset())
        if sighting.scope is not Scope.STEP or not loops.intersection(sighting.loops):
            return False
        return not self._is_the_result(function, sighting)

    def _is_the_result(self, function: Function, sighting: Sighting) -> bool:
        """Return whether the only read of a round hands out what the round was for."""
        if not sighting.handed_out or not sighting.fact.startswith(_EXPORTS):
            return False
        if any(function.loops[number].feeds_back for number in sighting.loops):
            return False
        others = (
            one
            for one in function.sightings
            if one.code == sighting.code and one.loops == sighting.loops and one is not sighting
        )
        return not any(self._holds(function, one) for one in others)

    def _holds(self, function: Function, what: Sighting | Wait) -> bool:
        return self.project.holds(what.value, what.wants, self.reach.bound_of(function))

    def _pool_runs_model(self, function: Function) -> bool:
        module = self.project.module_of[function.name]
        if module.sets_threads or module.names_gpu:
            return False
        workers = (
            self.project.runs(self.project.resolve(value))
            for scope, value in module.wraps
            if scope is Scope.WORKER
        )
        return any(worker is not None and self.reach.runs_model(worker) for worker in workers)

    def _locks(self, function: Function, told: AbstractSet[Spot]) -> Iterator[Seen]:
        """Yield waits under a lock; if it may be released elsewhere, those not told yet."""
        if not self.project.module_of[function.name].names_torch and not function.is_async:
            allowed = _HELD - {Pause.GPU}
        else:
            allowed = _HELD
        for wait in function.waits:
            counts = wait.locked and not wait.guarded and wait.pause in allowed
            counts = counts and not (wait.locked in function.unreleased and wait.spot in told)
            if counts and self._holds(function, wait):
                yield self._held(function, wait, wait.locked or "")
        for call in function.calls:
            if call.locked and not call.guarded and not call.awaited:
                for inner, wait in self._waits_of(function, call, _HELD, _DEEPEST):
                    yield self._held(inner, wait, call.locked)

    def _held(self, function: Function, wait: Wait, lock: str) -> Seen:
        fact = f"it waits for {wait.pause.value} while `{lock}` is held: {wait.fact}"
        return self._seen(function, 502, wait.spot, fact)

    def _coroutine(self, function: Function) -> Iterator[Seen]:
        for wait in function.waits:
            if wait.pause in _BLOCKING and not wait.awaited and self._holds(function, wait):
                yield self._blocks(function, function, wait)
        for call in function.calls:
            if not call.awaited:
                for inner, wait in self._waits_of(function, call, _BLOCKING, _DEEPEST):
                    yield self._blocks(inner, function, wait)

    def _blocks(self, inner: Function, coroutine: Function, wait: Wait) -> Seen:
        name = coroutine.name.rpartition(".")[2]
        fact = (
            f"the event loop stands still for {wait.pause.value} in coroutine `{name}`: {wait.fact}"
        )
        return self._seen(inner, 503, wait.spot, fact)

    def _waits_of(
        self, function: Function, call: Call, pauses: frozenset[Pause], depth: int
    ) -> Iterator[tuple[Function, Wait]]:
        """Yield the waits in what a call runs, one line each, and no model's own forward."""
        target = self.project.resolve(call.target, self.reach.bound_of(function))
        if target.kind is Kind.INSTANCE and self.project.is_module(target.of):
            if Pause.MODEL in pauses:
                fact = "the model runs before the call returns"
                value = Value(Kind.UNKNOWN)
                yield (
                    function,
                    Wait(Pause.MODEL, call.spot, fact, value, Wants.ANYTHING, call.locked),
                )
            return
        callee = self.project.runs(target)
        if callee is None or callee.is_async or callee.name == function.name:
            return
        waits = [
            wait
            for wait in callee.waits
            if wait.pause in pauses and not wait.guarded and self._certain(callee, wait)
        ]
        yield from ((callee, wait) for wait in waits)
        if depth > 1:
            for inner in callee.calls:
                if not inner.guarded:
                    yield from self._waits_of(callee, inner, pauses, depth - 1)

    def _certain(self, function: Function, wait: Wait) -> bool:
        """Return whether a wait somewhere behind a call is surely one: a tensor, not a maybe."""
        if wait.pause is Pause.GPU and wait.wants is Wants.NOT_HOST:
            bound = self.reach.bound_of(function)
            return self.project.holds(wait.value, Wants.TENSOR, bound)
        return self._holds(function, wait)
