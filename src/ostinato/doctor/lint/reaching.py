"""Which functions run in a step, under torch.compile, in a recording, or in a worker.

It starts from the forwards of modules, from what is wrapped or decorated, and from loops that run a
model, and follows the calls. On the way it learns what the parameters are.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Set as AbstractSet

from ostinato.doctor.lint.facts import Call, Function, Scope
from ostinato.doctor.lint.resolving import Project, bind
from ostinato.doctor.lint.values import Kind, Value, is_large, join

_STEPS = frozenset({Scope.STEP, Scope.COMPILED, Scope.CAPTURED})
_STEP = frozenset({Scope.STEP})
_DECODES = re.compile(r"(?:^|_)(?:generate|decod|sampl|greedy|beam|stream|rollout|assisted)")
_LONGEST = 12  # a function whose parameters still change after so many visits is left as it is


class Reach:
    """The scopes of every function, and what its parameters are."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.scopes: dict[str, set[Scope]] = {}
        self.bound: dict[str, dict[str, Value]] = {}
        self.step_loops: dict[str, frozenset[int]] = {}
        self._runs_model: dict[str, bool] = {}
        self._queue: deque[str] = deque()
        self._visits: dict[str, int] = {}

    def explore(self) -> None:
        """Find everything that can be reached."""
        self._roots()
        for function in self.project.functions.values():
            self._loops(function)
        while self._queue:
            self._visit(self.project.functions[self._queue.popleft()])

    def scopes_of(self, function: Function) -> set[Scope]:
        """Return the scopes of a function."""
        return self.scopes.get(function.name, set())

    def bound_of(self, function: Function) -> dict[str, Value]:
        """Return what is known of its parameters."""
        return self.bound.get(function.name, {})

    def _roots(self) -> None:
        for class_ in self.project.classes.values():
            forward = self.project.functions.get(class_.methods.get("forward", ""))
            is_step = self.project.is_module(class_.name)
            is_step = is_step and self.project.has_own_forward(class_.name)
            if forward is not None and is_step and not forward.once:
                self._add(forward, {Scope.STEP})
        for function in self.project.functions.values():
            if any(call.captured for call in function.calls):
                self._queue.append(function.name)
            if function.roles:
                self._add(
                    function, function.roles | (_STEP if function.roles & _STEPS else frozenset())
                )
        for module in self.project.modules.values():
            for scope, value in module.wraps:
                self._wrap(scope, value)

    def _wrap(self, scope: Scope, value: Value) -> None:
        target = self.project.runs(self.project.resolve(value))
        if target is not None:
            self._add(target, {scope} if scope is Scope.WORKER else {Scope.STEP, scope})

    def _add(self, function: Function, scopes: AbstractSet[Scope]) -> None:
        known = self.scopes.setdefault(function.name, set())
        if not scopes <= known:
            known |= scopes
            self._queue.append(function.name)

    def runs_model(self, function: Function, depth: int = 4) -> bool:
        """Return whether a call of the function runs a model."""
        found = self._runs_model.get(function.name)
        if found is None:
            self._runs_model[function.name] = function.runs_model
            found = function.runs_model or (
                depth > 0
                and any(self._calls_model(function, call, depth) for call in function.calls)
            )
            self._runs_model[function.name] = found
        return found

    def _calls_model(self, function: Function, call: Call, depth: int = 4) -> bool:
        target = self.project.resolve(call.target, self.bound_of(function))
        if target.kind is Kind.WRAPPED:
            return True
        if target.kind is Kind.INSTANCE and self.project.is_module(target.of):
            return True
        callee = self.project.runs(target)
        return callee is not None and self.runs_model(callee, depth - 1)

    def _loops(self, function: Function) -> None:
        if not function.loops or function.trains or function.once:
            return
        found: set[int] = set()
        for number, loop in enumerate(function.loops):
            inside = [call for call in function.calls if number in call.loops and not call.guarded]
            # A function that is called for one input after another does whole requests.
            by_name = bool(_DECODES.search(function.name.rpartition(".")[2]))
            inside = [call for call in inside if by_name or call.feeds_back or self._is_own(call)]
            models = loop.runs_model or any(self._calls_model(function, one) for one in inside)
            if models and (loop.inference or any(map(self._is_inference, inside))):
                found.add(number)
        if not found:
            return
        self.step_loops[function.name] = frozenset(found)
        self._queue.append(function.name)

    def _is_own(self, call: Call) -> bool:
        """Return whether a module, a recording or compiled code is called, not a function."""
        return self.project.resolve(call.target).kind in (Kind.INSTANCE, Kind.WRAPPED)

    def _is_inference(self, call: Call) -> bool:
        target = self.project.resolve(call.target)
        if target.kind is Kind.WRAPPED:
            return True  # one that trains is left out before
        callee = self.project.runs(target)
        return callee is not None and (callee.inference or bool(callee.roles & _STEPS))

    def _visit(self, function: Function) -> None:
        visits = self._visits[function.name] = self._visits.get(function.name, 0) + 1
        if visits > _LONGEST:
            return
        scopes = self.scopes_of(function)
        loops = self.step_loops.get(function.name, frozenset())
        for call in function.calls:
            given = {Scope.WORKER} & scopes
            if not call.guarded:
                given |= scopes & _STEPS
                if loops.intersection(call.loops):
                    given.add(Scope.STEP)
                if call.captured:
                    given |= {Scope.STEP, Scope.CAPTURED}
            if given:
                self._follow(function, call, given)

    def _follow(self, function: Function, call: Call, scopes: set[Scope]) -> None:
        bound = self.bound_of(function)
        target = self.project.resolve(call.target, bound)
        callee = self.project.runs(target)
        if callee is None or (callee.once and Scope.WORKER not in scopes):
            return
        args = tuple(self.project.resolve(one, bound) for one in call.args)
        if callee.owner and callee.params and callee.params[0][0] in ("self", "cls"):
            args = (callee.params[0][1], *args)
        keywords = tuple((key, self.project.resolve(one, bound)) for key, one in call.keywords)
        if self._learn(callee, bind(callee, args, keywords)):
            self._queue.append(callee.name)
        self._add(callee, scopes)

    def _learn(self, function: Function, given: dict[str, Value]) -> bool:
        """Join what a call gives into what is known of the parameters; return whether it is new."""
        known = self.bound.setdefault(function.name, {})
        changed = False
        for key, value in given.items():
            if value.kind is Kind.UNKNOWN or is_large(value):
                continue
            before = known.get(key)
            after = value if before is None else join(before, value)
            if after != before and after.kind is not Kind.SYMBOL:
                known[key] = after
                changed = True
        return changed
