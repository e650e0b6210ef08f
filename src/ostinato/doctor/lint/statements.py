"""Reading the statements of one function, in the order in which they run.

Branches are read apart and joined; a loop is read twice, first quietly, so that a name which is a
tensor from the second round on is one when the rules look.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ostinato.doctor.lint import operations, rules
from ostinato.doctor.lint.annotations import value_of
from ostinato.doctor.lint.expressions import Expressions
from ostinato.doctor.lint.guards import guards_of, is_once
from ostinato.doctor.lint.imports import absolute, canonical
from ostinato.doctor.lint.narrowing import narrowed
from ostinato.doctor.lint.rules import captures, layout, losses
from ostinato.doctor.lint.scene import Scene, kept_alive
from ostinato.doctor.lint.values import (
    UNKNOWN,
    Kind,
    Trait,
    Value,
    join,
    name,
)

_LOCK_TYPES = frozenset(
    "threading." + word for word in ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
)
_INFERENCE = frozenset({"torch.no_grad", "torch.inference_mode"})
_DEEPEST = 3  # a loop inside so many is read once


class Statements:
    """Reads the body of a function."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.expressions = Expressions(scene)

    def block(self, body: list[ast.stmt]) -> bool:
        """Read statements; return whether the end is reached."""
        guarded = 0
        for statement in body:
            reader = _READERS.get(type(statement))
            falls_through = True if reader is None else reader(self, statement)
            if falls_through is False:
                self.scene.guards -= guarded
                return False
            if falls_through is None:  # the rest is what a guard left over
                guarded += 1
                self.scene.guards += 1
        self.scene.guards -= guarded
        return True

    def _expression(self, node: ast.Expr) -> bool:
        value = self.expressions.read(node.value)
        self._lock_calls(node.value)
        return value is not None

    def _lock_calls(self, node: ast.expr) -> None:
        """Follow `lock.acquire()` and `lock.release()` on lines of their own."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return
        scene, lock = self.scene, ast.unparse(node.func.value)
        if node.func.attr == "acquire" and self._is_lock(node.func.value):
            scene.locks = (*scene.locks, lock)
            scene.function.unreleased.add(lock)
        elif node.func.attr == "release" and lock in scene.locks:
            scene.locks = tuple(held for held in scene.locks if held != lock)
            scene.function.unreleased.discard(lock)

    def _outer(self, node: ast.Global | ast.Nonlocal) -> bool:
        self.scene.outer |= frozenset(node.names)
        return True

    def _assign(self, node: ast.Assign) -> bool:
        self.scene.copies.clear()
        value = self.expressions.read(node.value)
        for target in node.targets:
            self._seen(target, node.value, value)
            self.expressions.bind(target, self._grown(target, node.value, value))
        return True

    def _seen(self, target: ast.expr, node: ast.expr, value: Value) -> None:
        layout.assigned(self.scene, target, node)
        losses.assigned(self.scene, target, value)

    def _grown(self, target: ast.expr, node: ast.expr, value: Value) -> Value:
        """Mark `x = torch.cat([x, y])` in a loop: another shape each time."""
        if not (self.scene.loops and isinstance(target, ast.Name) and isinstance(node, ast.Call)):
            return value
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in ("cat", "concat", "hstack", "vstack"):
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if target.id in names:
                return value.with_traits(Trait.GROWS)
        return value

    def _annotated(self, node: ast.AnnAssign) -> bool:
        declared = value_of(node.annotation, self.scene.dotted)
        if node.value is None:
            if isinstance(node.target, ast.Name):
                self.scene.env[node.target.id] = declared
            return True
        value = self.expressions.read(node.value)
        self._seen(node.target, node.value, value)
        vague = value.kind in (Kind.UNKNOWN, Kind.SYMBOL)
        self.expressions.bind(node.target, declared if vague and declared != UNKNOWN else value)
        return True

    def _augmented(self, node: ast.AugAssign) -> bool:
        if isinstance(node.target, ast.Subscript):
            self.expressions.read(node.value)
            self.expressions.read(node.target)  # x[mask] += y reads x[mask] first
            return True
        before = self.expressions.quietly(node.target)
        after = operations.mix(before, self.expressions.read(node.value))
        if self.scene.loops and after.kind is Kind.PYTHON:
            after = after.with_traits(Trait.VARIES)
        losses.assigned(self.scene, node.target, after)
        self.expressions.bind(node.target, after)
        return True

    def _if(self, node: ast.If) -> bool | None:
        self.expressions.test(node.test)
        body_guard, else_guard = guards_of(node.test)
        is_apart = body_guard != else_guard
        body_guard = body_guard or is_once(node.test, node.body, self.scene.outer)
        body_guard = body_guard or isinstance(node.body[-1], ast.Raise)
        else_guard = else_guard or (bool(node.orelse) and isinstance(node.orelse[-1], ast.Raise))
        before = self.scene.env
        self.scene.env = narrowed(self.scene, before, node.test, holds=True)
        with self.scene.guarded(body_guard):
            body_ends = self.block(node.body)
        after_body = self.scene.env
        self.scene.env = narrowed(self.scene, before, node.test, holds=False)
        with self.scene.guarded(else_guard):
            else_ends = self.block(node.orelse)
        if body_ends and else_ends and is_apart:  # what a step goes on with comes first
            step, other = (
                (self.scene.env, after_body) if body_guard else (after_body, self.scene.env)
            )
            self.scene.env = {**other, **step}
        elif body_ends and else_ends:
            self.scene.env = _joined(after_body, self.scene.env)
        elif body_ends:
            self.scene.env = after_body
        if not (body_ends or else_ends):
            return False
        rest_is_guarded = (body_guard and not else_ends) or (else_guard and not body_ends)
        return None if rest_is_guarded else True

    def _for(self, node: ast.For | ast.AsyncFor) -> bool:
        self.scene.awaited = isinstance(node, ast.AsyncFor)
        items = self.expressions.read(node.iter)
        self.scene.awaited = False
        self._loop(node.body, lambda: self._bind_round(node, items))
        self.block(node.orelse)
        return True

    def _bind_round(self, node: ast.For | ast.AsyncFor, items: Value) -> None:
        self.expressions.bind(node.target, operations.iterated(items))

    def _while(self, node: ast.While) -> bool:
        self._loop(node.body, lambda: self.expressions.test(node.test))
        self.block(node.orelse)
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return not is_endless or any(isinstance(part, ast.Break) for part in ast.walk(node))

    def _loop(self, body: list[ast.stmt], begin: Callable[[], None]) -> None:
        scene = self.scene
        outer = scene.loops
        scene.loops = (*outer, scene.open_loop())
        before = scene.env
        if len(outer) < _DEEPEST:
            scene.env = dict(before)
            scene.quiet += 1
            begin()
            self.block(body)
            scene.quiet -= 1
            before = _joined(before, scene.env)
        scene.env = dict(before)
        begin()
        self.block(body)
        self._see_feedback(scene.loops, body)
        scene.loops = outer
        ended = _joined(before, scene.env)
        # What grew in this loop has its size now.
        scene.env = {key: value.without(Trait.GROWS) for key, value in ended.items()}

    def _see_feedback(self, loops: tuple[int, ...], body: list[ast.stmt]) -> None:
        """Note whether a model is called with what an earlier round computed."""
        scene = self.scene
        calls = [one for one in scene.model_calls if one[0] == loops]
        others = [one for one in scene.looped_calls if one[0] == loops]
        if scene.quiet or not (calls or others):
            return
        stored = [
            (part.id, part.lineno)
            for statement in body
            for part in ast.walk(statement)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
        for _, names, line in calls:
            if _feeds(stored, names, line):
                loop = scene.function.loops[loops[-1]]
                scene.function.loops[loops[-1]] = replace(loop, feeds_back=True)
        for _, names, line, number in others:
            if _feeds(stored, names, line):
                call = scene.function.calls[number]
                scene.function.calls[number] = replace(call, feeds_back=True)

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        scene = self.scene
        saved = (scene.inference, scene.captured, scene.autocast, scene.locks)
        for item in node.items:
            self._enter(item, is_async=isinstance(node, ast.AsyncWith))
        ends = self.block(node.body)
        scene.inference, scene.captured, scene.autocast, scene.locks = saved
        return ends

    def _enter(self, item: ast.withitem, *, is_async: bool) -> None:
        scene, expression = self.scene, item.context_expr
        call = expression if isinstance(expression, ast.Call) else None
        dotted = scene.dotted(call.func if call else expression) or ""
        scene.awaited = is_async
        value = self.expressions.read(expression)
        scene.awaited = False
        words = {}
        if call is not None:
            words = {
                word.arg or "**": self.expressions.quietly(word.value) for word in call.keywords
            }
        rules.entered(scene, expression, dotted, words)
        if dotted in _INFERENCE:
            scene.inference += 1
        elif dotted == "torch.cuda.graph":
            scene.captured += 1
            scene.env = kept_alive(scene.env)
            scene.frozen.clear()
            scene.drifted.clear()
        elif captures.is_caching_autocast(dotted, words):
            scene.autocast += 1
        elif not is_async and self._is_lock(expression):
            scene.locks = (*scene.locks, ast.unparse(expression))
        if item.optional_vars is not None:
            self.expressions.bind(item.optional_vars, value)

    def _is_lock(self, node: ast.expr) -> bool:
        """Return whether this is a lock of threads: by what it is, or by its name."""
        value = self.expressions.quietly(node)
        if value.kind is Kind.INSTANCE:
            return value.of in _LOCK_TYPES
        if value.kind is Kind.SYMBOL:
            owned = self.scene.module.classes.get(self.scene.function.owner or "")
            if owned is not None and isinstance(node, ast.Attribute):
                stored = owned.attributes.get(node.attr)
                if stored is not None and stored.kind is Kind.INSTANCE:
                    return stored.of in _LOCK_TYPES
        word = node.id if isinstance(node, ast.Name) else ""
        word = node.attr if isinstance(node, ast.Attribute) else word
        plain = word.lower().strip("_")
        return plain.endswith(("lock", "mutex")) and not plain.endswith(("block", "clock"))

    def _try(self, node: ast.Try) -> bool:
        before = dict(self.scene.env)
        ends = self.block(node.body)
        if ends:
            ends = self.block(node.orelse)
        after = [self.scene.env] if ends else []
        locks = self.scene.locks
        for handler in node.handlers:
            self.scene.env = _joined(before, self.scene.env)
            with self.scene.guarded():
                if self.block(handler.body):
                    after.append(self.scene.env)
        self.scene.locks = locks
        self.scene.env = after[0] if after else before
        for other in after[1:]:
            self.scene.env = _joined(self.scene.env, other)
        return self.block(node.finalbody) and bool(after)

    def _return(self, node: ast.Return) -> bool:
        value = self.expressions.read(node.value)
        function = self.scene.function
        if not self.scene.quiet:
            function.returns = value if function.returns is None else join(function.returns, value)
        return False

    def _raise(self, node: ast.Raise) -> bool:
        with self.scene.guarded():
            self.expressions.read(node.exc)
        return False

    def _assert(self, node: ast.Assert) -> bool:
        self.expressions.test(node.test)
        if node.msg is not None:
            with self.scene.guarded():
                self.expressions.read(node.msg)
        return True

    def _stop(self, node: ast.stmt) -> bool:
        return False

    def _nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        self.scene.env[node.name] = name(f"{self.scene.function.name}.{node.name}")
        if not self.scene.quiet and node not in self.scene.pending:
            self.scene.pending.append(node)
        for decorator in node.decorator_list:
            self.expressions.read(decorator)
        return True

    def _import(self, node: ast.Import) -> bool:
        for alias in node.names:
            if alias.asname:
                self.scene.env[alias.asname] = name(alias.name)
            else:
                root = alias.name.partition(".")[0]
                self.scene.env[root] = name(root)
        return True

    def _import_from(self, node: ast.ImportFrom) -> bool:
        package = absolute(self.scene.module.name, node, is_package=self.scene.module.is_package)
        for alias in node.names:
            self.scene.env[alias.asname or alias.name] = name(canonical(f"{package}.{alias.name}"))
        return True

    def _match(self, node: ast.Match) -> bool:
        subject = self.expressions.read(node.subject)
        if any(isinstance(case.pattern, ast.MatchValue) for case in node.cases):
            rules.truth(self.scene, node.subject, subject)
        before = self.scene.env
        ends: list[dict[str, Value]] = []
        for case in node.cases:
            self.scene.env = dict(before)
            for part in ast.walk(case.pattern):
                if isinstance(part, ast.MatchAs | ast.MatchStar) and part.name:
                    self.scene.env[part.name] = UNKNOWN
            if case.guard is not None:
                self.expressions.test(case.guard)
            if self.block(case.body):
                ends.append(self.scene.env)
        self.scene.env = before
        for env in ends:
            self.scene.env = _joined(self.scene.env, env)
        return True


def _feeds(stored: list[tuple[str, int]], names: frozenset[str], line: int) -> bool:
    """Return whether one of the names is stored at the line or after it."""
    return any(name in names and stored_at >= line for name, stored_at in stored)


def _joined(first: dict[str, Value], second: dict[str, Value]) -> dict[str, Value]:
    if first is second:
        return first
    result = dict(first)
    for word, value in second.items():
        known = result.get(word)
        result[word] = value if known is None else join(known, value)
    return result


_READERS: dict[type[ast.stmt], Callable[[Statements, Any], bool | None]] = {
    ast.Expr: Statements._expression,
    ast.Assign: Statements._assign,
    ast.AnnAssign: Statements._annotated,
    ast.AugAssign: Statements._augmented,
    ast.If: Statements._if,
    ast.For: Statements._for,
    ast.AsyncFor: Statements._for,
    ast.While: Statements._while,
    ast.With: Statements._with,
    ast.AsyncWith: Statements._with,
    ast.Try: Statements._try,
    ast.TryStar: Statements._try,
    ast.Return: Statements._return,
    ast.Raise: Statements._raise,
    ast.Assert: Statements._assert,
    ast.Continue: Statements._stop,
    ast.Break: Statements._stop,
    ast.FunctionDef: Statements._nested,
    ast.AsyncFunctionDef: Statements._nested,
    ast.Import: Statements._import,
    ast.ImportFrom: Statements._import_from,
    ast.Match: Statements._match,
    ast.Global: Statements._outer,
    ast.Nonlocal: Statements._outer,
}
