"""Reading expressions: what each gives, and what the rules see on the way.

The walk has no opinion on findings. It tells the rules of every call, every test for truth and
every index (`rules/__init__.py`), with the values it worked out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ostinato.doctor.lint import calls, operations, rules
from ostinato.doctor.lint.guards import guards_of
from ostinato.doctor.lint.narrowing import told
from ostinato.doctor.lint.scene import Scene, spot_of
from ostinato.doctor.lint.values import (
    ARRAY,
    PYTHON,
    UNKNOWN,
    Kind,
    Op,
    Trait,
    Value,
    constant,
    each,
    instance,
    join,
    symbol,
)

_AWAITING = frozenset(
    "asyncio." + word for word in ("wait_for", "gather", "shield", "ensure_future", "create_task")
)
_HANDING = frozenset({"append", "extend", "put", "put_nowait", "send", "write"})

_GRAPH = instance("torch.cuda.CUDAGraph")


class Expressions:
    """Reads the expressions of one function."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def read(self, node: ast.expr | None) -> Value:
        """Return what an expression gives."""
        if node is None:
            return PYTHON
        reader = _READERS.get(type(node))
        return UNKNOWN if reader is None else reader(self, node)

    def test(self, node: ast.expr) -> None:
        """Read an expression whose truth decides."""
        if isinstance(node, ast.BoolOp):
            self._bool_op(node, is_test=True)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.test(node.operand)
        elif isinstance(node, ast.NamedExpr):
            rules.truth(self.scene, node, self.read(node))
        else:
            rules.truth(self.scene, node, self.read(node))

    def _bool_op(self, node: ast.BoolOp, *, is_test: bool = False) -> Value:
        result: Value | None = None
        guards = 0
        undo: dict[str, Value] = {}
        for place, operand in enumerate(node.values):
            is_last = place == len(node.values) - 1
            if is_test or not is_last:
                self.test(operand)
            value = (
                PYTHON
                if is_test
                else self.quietly(operand)
                if not is_last
                else (self.read(operand))
            )
            result = value if result is None else join(result, value)
            self._narrow(operand, holds=isinstance(node.op, ast.And), undo=undo)
            body, otherwise = guards_of(operand)
            if body if isinstance(node.op, ast.And) else otherwise:
                guards += 1
                self.scene.guards += 1
        self.scene.guards -= guards
        self.scene.env.update(undo)
        return result or PYTHON

    def _narrow(self, test: ast.expr, *, holds: bool, undo: dict[str, Value]) -> None:
        """Let what follows know what `isinstance` told; `undo` gets what names held before."""
        for key, value in told(self.scene, test, holds=holds).items():
            undo.setdefault(key, self.scene.lookup(key))
            self.scene.env[key] = value

    def quietly(self, node: ast.expr) -> Value:
        """Read again what was read already."""
        self.scene.quiet += 1
        try:
            return self.read(node)
        finally:
            self.scene.quiet -= 1

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        if self.scene.captured:
            self.scene.frozen.add(node.id)
        return self.scene.lookup(node.id)

    def _attribute(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name):
            stored = self.scene.env.get(f"{node.value.id}.{node.attr}")
            if stored is not None:
                return stored
        base = self.read(node.value)
        if base.kind is Kind.INSTANCE:
            own = self.scene.own_attribute(base.of, node.attr)
            if own is not None:
                return own
        if node.attr == "dtype" and base.kind is not Kind.NAME:
            return constant("dtype")
        return operations.attribute(base, node.attr)

    def _call(self, node: ast.Call) -> Value:
        base = UNKNOWN
        if isinstance(node.func, ast.Attribute):
            base = self.read(node.func.value)
            stored = None
            if isinstance(node.func.value, ast.Name):
                stored = self.scene.env.get(f"{node.func.value.id}.{node.func.attr}")
            if base.kind is Kind.INSTANCE and stored is None:
                stored = self.scene.own_attribute(base.of, node.func.attr)
            target = stored or operations.attribute(base, node.func.attr)
        else:
            target = self.read(node.func)
        awaited = self.scene.awaited
        self.scene.awaited = _takes_coroutines(node.func, target)
        is_handing = isinstance(node.func, ast.Attribute) and node.func.attr in _HANDING
        self.scene.handing += is_handing
        args = tuple(map(self.read, node.args))
        self.scene.handing -= is_handing
        keywords = tuple((word.arg or "**", self.read(word.value)) for word in node.keywords)
        self.scene.awaited = awaited
        if isinstance(node.func, ast.Attribute) and base.kind is not Kind.NAME and (stored is None):
            result = operations.method(base, node.func.attr, args, keywords)
        else:
            result = calls.call(target, args, keywords)
        return rules.called(self.scene, node, base, target, args, keywords, result)

    def _starred(self, node: ast.Starred) -> Value:
        self.read(node.value)
        return UNKNOWN

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.read(node.left), self.read(node.right)
        if isinstance(node.op, ast.Mod) and isinstance(operations.known(left), str):
            rules.shown(self.scene, node.right, right)
            return PYTHON
        if isinstance(node.op, ast.MatMult) and self.scene.loops:
            self.scene.runs_model(node)  # a loop of matrix products is a step as well
            if Kind.TENSOR in (left.kind, right.kind):
                rules.multiplied(self.scene, node)
        if Kind.EACH in (left.kind, right.kind) or Kind.ITEMS in (left.kind, right.kind):
            return _containers(node.op, left, right)
        return operations.mix(left, right)

    def _unary(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            self.test(node.operand)
            return PYTHON
        value = self.read(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(operations.known(value), int):
            return constant(-value.of[0])
        return value

    def _compare(self, node: ast.Compare) -> Value:
        left = self.read(node.left)
        result: Value = PYTHON
        for place, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self.read(right_node)
            if isinstance(op, ast.Is | ast.IsNot):
                result = PYTHON
            elif isinstance(op, ast.In | ast.NotIn):
                rules.membership(self.scene, node, left, right)
                result = PYTHON
            else:
                result = operations.compared(left, right)
            if place < len(node.ops) - 1:  # a < b < c asks for the truth of a < b
                rules.truth(self.scene, node, result)
            left = right
        return result

    def _conditional(self, node: ast.IfExp) -> Value:
        self.test(node.test)
        body, otherwise = guards_of(node.test)
        undo: dict[str, Value] = {}
        self._narrow(node.test, holds=True, undo=undo)
        with self.scene.guarded(body):
            first = self.read(node.body)
        self.scene.env.update(undo)
        self._narrow(node.test, holds=False, undo=undo)
        with self.scene.guarded(otherwise):
            second = self.read(node.orelse)
        self.scene.env.update(undo)
        if body != otherwise:  # what a step goes on with
            return second if body else first
        return join(first, second)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.read(node.value)
        index = self.index(node.slice)
        rules.indexed(self.scene, node, base, index)
        return operations.item(base, index)

    def index(self, node: ast.expr) -> Value:
        """Read what stands between square brackets."""
        if isinstance(node, ast.Slice):
            bounds = [self.read(part) for part in (node.lower, node.upper, node.step) if part]
            rules.sliced(self.scene, node, bounds)
            grows = any(bound.has(Trait.VARIES) for bound in bounds)
            return Value(Kind.PYTHON, ("slice",), int(Trait.GROWS) if grows else 0)
        if isinstance(node, ast.Tuple):
            parts = tuple(map(self.index, node.elts))
            grows = any(part.has(Trait.GROWS) for part in parts)
            return Value(Kind.ITEMS, parts, int(Trait.GROWS) if grows else 0)
        return self.read(node)

    def _items(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        values = tuple(map(self.read, node.elts))
        if isinstance(node, ast.List) and not values:
            return each(UNKNOWN)
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return UNKNOWN
        if len(values) > 12:
            return operations.iterated(Value(Kind.ITEMS, values[:12]))
        return Value(Kind.ITEMS, values)

    def _dict(self, node: ast.Dict) -> Value:
        result: Value | None = None
        for key, part in zip(node.keys, node.values, strict=True):
            if key is not None:
                self.read(key)
            value = self.read(part)
            result = value if result is None else join(result, value)
        return UNKNOWN if result is None else each(result).with_traits(Trait.MAPPING)

    def _formatted(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                rules.shown(self.scene, part.value, self.read(part.value))
        return PYTHON

    def _comprehension(self, node: Any) -> Value:
        before = dict(self.scene.env)
        loops = self.scene.loops
        self.scene.loops = (*loops, self.scene.open_loop())
        for part in node.generators:
            self.bind(part.target, operations.iterated(self.read(part.iter)))
            for condition in part.ifs:
                self.test(condition)
        if isinstance(node, ast.DictComp):
            self.read(node.key)
            item = self.read(node.value)
        else:
            item = self.read(node.elt)
        self.scene.loops = loops
        self.scene.env = before
        traits = Trait.MAPPING if isinstance(node, ast.DictComp) else 0
        return each(item).with_traits(traits)

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.read(node.value)
        self.bind(node.target, value)
        return value

    def _await(self, node: ast.Await) -> Value:
        rules.awaiting(self.scene, node)
        self.scene.awaited = True
        value = self.read(node.value)
        self.scene.awaited = False
        return value

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> Value:
        self.scene.handing += 1
        self.read(node.value)
        self.scene.handing -= 1
        return UNKNOWN

    def _lambda(self, node: ast.Lambda) -> Value:
        return UNKNOWN

    def bind(self, target: ast.expr, value: Value) -> None:
        """Store a value where an assignment puts it."""
        env = self.scene.env
        if isinstance(target, ast.Name):
            if value == _GRAPH:
                self.scene.graphs[target.id] = self.scene.loops
            if target.id in self.scene.frozen and not self.scene.captured:
                self.scene.drifted.append((spot_of(target), target.id))
            env[target.id] = value
            self._forget(target.id)
        elif isinstance(target, ast.Attribute):
            self.read(target.value)
            if isinstance(target.value, ast.Name):
                kept = value.without(Trait.MADE_HERE)  # the object keeps it alive
                env[f"{target.value.id}.{target.attr}"] = kept
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, each(operations.iterated(value)))
        elif isinstance(target, ast.Subscript):
            base = self.read(target.value)
            index = self.index(target.slice)
            rules.stored(self.scene, target, base, index, value)

    def _forget(self, word: str) -> None:
        """Drop what was known of `word.x`, now that `word` is another object."""
        if word == "self":
            return
        stale = [key for key in self.scene.env if key.startswith(f"{word}.")]
        for key in stale:
            del self.scene.env[key]

    def _unpack(self, targets: list[ast.expr], value: Value) -> None:
        for place, target in enumerate(targets):
            if value.kind is Kind.ITEMS and len(value.of) == len(targets):
                part = value.of[place]
            elif value.kind is Kind.SYMBOL:
                part = symbol(Op.ITEM, value, constant(place))
            else:
                part = operations.iterated(value)
            self.bind(target, part)


def _takes_coroutines(func: ast.expr, target: Value) -> bool:
    """Return whether the arguments are awaited by what is called: `wait_for(queue.get(), 1)`."""
    attr = func.attr if isinstance(func, ast.Attribute) else ""
    dotted = target.of if target.kind is Kind.NAME else ""
    return attr == "create_task" or dotted in _AWAITING


def _containers(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(op, ast.Mult):
        return left if left.kind in (Kind.EACH, Kind.ITEMS) else right
    if left.kind is Kind.ITEMS and right.kind is Kind.ITEMS:
        return Value(Kind.ITEMS, (*left.of, *right.of))
    if ARRAY in (left, right):
        return ARRAY
    if Kind.TENSOR in (left.kind, right.kind):
        return operations.mix(*(v for v in (left, right) if v.kind is Kind.TENSOR))
    return each(join(operations.iterated(left), operations.iterated(right)))


_READERS: dict[type[ast.expr], Callable[[Expressions, Any], Value]] = {
    ast.Constant: Expressions._constant,
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Call: Expressions._call,
    ast.Starred: Expressions._starred,
    ast.BinOp: Expressions._binary,
    ast.UnaryOp: Expressions._unary,
    ast.BoolOp: Expressions._bool_op,
    ast.Compare: Expressions._compare,
    ast.IfExp: Expressions._conditional,
    ast.Subscript: Expressions._subscript,
    ast.Tuple: Expressions._items,
    ast.List: Expressions._items,
    ast.Set: Expressions._items,
    ast.Dict: Expressions._dict,
    ast.JoinedStr: Expressions._formatted,
    ast.ListComp: Expressions._comprehension,
    ast.SetComp: Expressions._comprehension,
    ast.GeneratorExp: Expressions._comprehension,
    ast.DictComp: Expressions._comprehension,
    ast.NamedExpr: Expressions._named,
    ast.Await: Expressions._await,
    ast.Yield: Expressions._yield,
    ast.YieldFrom: Expressions._yield,
    ast.Lambda: Expressions._lambda,
}
