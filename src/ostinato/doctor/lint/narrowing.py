"""What `isinstance` and `is_tensor` tell of a name in the branches after them."""

from __future__ import annotations

import ast

from ostinato.doctor.lint.annotations import value_of
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import PYTHON, TENSOR, UNKNOWN, Kind, Value, instance


def narrowed(
    scene: Scene, env: dict[str, Value], test: ast.expr, *, holds: bool
) -> dict[str, Value]:
    """Return what names hold in the branch where the test does, or does not, hold."""
    return {**env, **told(scene, test, holds=holds)}


def told(scene: Scene, test: ast.expr, *, holds: bool) -> dict[str, Value]:
    """Return what a test tells of names: `isinstance(x, T)`, alone, negated or with others."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return told(scene, test.operand, holds=not holds)
    if isinstance(test, ast.BoolOp):
        found: dict[str, Value] = {}
        if isinstance(test.op, ast.And) is holds:  # all of them hold, or none does
            for part in test.values:
                found.update(told(scene, part, holds=holds))
        return found
    if not (isinstance(test, ast.Call) and test.args):
        return {}
    subject = test.args[0]
    function = scene.dotted(test.func) or ""
    key = subject.id if isinstance(subject, ast.Name) else ""
    if isinstance(subject, ast.Attribute) and isinstance(subject.value, ast.Name):
        key = f"{subject.value.id}.{subject.attr}"
    if not key:
        return {}
    if function == "torch.is_tensor":
        return {key: TENSOR if holds else UNKNOWN}
    if function.endswith("isinstance") and len(test.args) == 2:
        before = scene.env.get(key, UNKNOWN)
        return {key: _of_type(scene, test.args[1], before, holds=holds)}
    return {}


def _of_type(scene: Scene, node: ast.expr, before: Value, *, holds: bool) -> Value:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    values = [value_of(part, scene.dotted) for part in parts]
    names_tensor = any(value.kind is Kind.TENSOR for value in values)
    if not holds:
        return UNKNOWN if names_tensor and before.kind is not Kind.ARRAY else before
    if len(values) == 1 and names_tensor:
        return before if before.kind in (Kind.TENSOR, Kind.HOST) else TENSOR
    if names_tensor:
        return UNKNOWN
    if values and all(value.kind is Kind.PYTHON for value in values):
        return PYTHON
    if len(values) == 1 and values[0].kind is Kind.INSTANCE:
        return instance(values[0].of)
    return UNKNOWN if before.kind in (Kind.TENSOR, Kind.SYMBOL) else before
