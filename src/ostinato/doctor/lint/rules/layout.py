"""Queries, keys and values that are copied in every step because their strides were swapped."""

from __future__ import annotations

import ast
import re

from ostinato.doctor.lint.facts import Scope, Wants
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import Kind, Trait

_QKV = re.compile(
    r"^(?:q|k|v|qkv|xq|xk|xv|query|key|value|queries|keys|values|qs|ks|vs)(?:_|$)|"
    r"(?:^|_)(?:q|k|v|qkv|query|key|value)(?:_(?:states|layer|proj|heads?|cache|t))?$",
    re.IGNORECASE,
)
_FACT = "`.contiguous()` copies a transposed query, key or value in every step"
# Attention that takes any strides of the outer dimensions, so that a copy before it is for nothing.
_ATTENTIONS = frozenset(
    {"torch.nn.functional.scaled_dot_product_attention", "flash_attn.flash_attn_func"}
)


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.function in _ATTENTIONS:
        for node in event.node.args[:3]:
            if _is_copy_of_view(node):
                scene.sight(402, Scope.STEP, node, _FACT)
    if event.attr != "contiguous" or event.function:
        return
    base = event.base
    if base.kind in (Kind.TENSOR, Kind.SYMBOL) and base.has(Trait.TRANSPOSED):
        scene.copies.append(event.node)
        event.result = event.result.without(int(Trait.TRANSPOSED))
        if _names_qkv(event.node.func):
            scene.sight(402, Scope.STEP, event.node, _FACT, base, Wants.NOT_HOST)


def assigned(scene: Scene, target: ast.expr, value: ast.expr) -> None:
    """See `q = x.transpose(1, 2).contiguous()`: the name tells what it is."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            assigned(scene, one, part)
        return
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    if not all(isinstance(one, ast.Name) and _QKV.search(one.id) for one in names):
        return
    copied = value.elt if isinstance(value, ast.GeneratorExp | ast.ListComp) else value
    is_seen = any(copied is node for node in scene.copies) or _is_copy_of_view(copied)
    if is_seen and isinstance(copied, ast.Call) and not _names_qkv(copied):
        scene.sight(402, Scope.STEP, copied, _FACT)


def _is_copy_of_view(node: ast.expr) -> bool:
    """Return whether the node reads `x.transpose(...).contiguous()`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    inner = node.func.value
    return (
        node.func.attr == "contiguous"
        and isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in ("transpose", "permute", "swapaxes")
    )


def _names_qkv(node: ast.expr) -> bool:
    """Return whether a chain of calls starts at a query, key or value."""
    while True:
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Attribute):
            if _QKV.search(node.attr) and not isinstance(node.value, ast.Call):
                return True
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return isinstance(node, ast.Name) and bool(_QKV.search(node.id))
