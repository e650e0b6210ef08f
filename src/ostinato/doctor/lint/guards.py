"""Which branch of an `if` is no part of a step: training, debugging, once, tracing.

A host read that happens every hundredth round, or only with labels, or on the first call, is not
what makes a service slow.
"""

from __future__ import annotations

import ast
import re

from ostinato.doctor.lint.torch_names import words

_TRAINING_NAMES = words(
    "return_loss compute_loss start_positions end_positions loss is_training training do_train "
    "train future_values ground_truth gt_boxes target_values labels_attention_mask "
    "return_contrastive_loss future_observed_mask"
)
_LABELS = re.compile(r"(?:^|_)(?:labels?|targets?)$")
_RARE = re.compile(
    r"debug|verbose|trace|tracing|compiling|exporting|onnx|log_every|isEnabledFor|_profile|dump"
    r"|initiali[sz]ed|_warned|gradient_checkpointing|is_first_call|sanity|jit_|scripting|torchscript"
    r"|validate_args|strict_check",
    re.IGNORECASE,
)

Guards = tuple[bool, bool]


def guards_of(test: ast.expr) -> Guards:
    """Return whether the branch taken, and the branch not taken, are no part of a step."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        body, otherwise = guards_of(test.operand)
        return otherwise, body
    if isinstance(test, ast.BoolOp):
        parts = [guards_of(part) for part in test.values]
        if isinstance(test.op, ast.And):
            return any(body for body, _ in parts), all(otherwise for _, otherwise in parts)
        return all(body for body, _ in parts), any(otherwise for _, otherwise in parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _of_comparison(test)
    if isinstance(test, ast.Call):
        return _of_call(test)
    word = _last(test)
    return (_trains(word) or bool(_RARE.search(word))) if word else False, False


def _of_comparison(test: ast.Compare) -> Guards:
    op, right = test.ops[0], test.comparators[0]
    against_none = isinstance(right, ast.Constant) and right.value is None
    if against_none and _trains(_last(test.left)):
        return isinstance(op, ast.IsNot | ast.NotEq), isinstance(op, ast.Is | ast.Eq)
    if isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mod):
        # Every n-th round; `i % n != 0` guards the other branch.
        is_zero = isinstance(right, ast.Constant) and isinstance(right.value, int)
        return is_zero and isinstance(op, ast.Eq), is_zero and isinstance(op, ast.NotEq)
    if isinstance(right, ast.Constant) and right.value in ("train", "training"):
        return isinstance(op, ast.Eq), isinstance(op, ast.NotEq)
    if isinstance(right, ast.Constant) and right.value == "__main__":
        return True, False
    return False, False


def _of_call(test: ast.Call) -> Guards:
    word = _last(test.func)
    if word == "hasattr":
        return False, True
    if word in ("is_available", "getattr"):
        return False, False
    return bool(word and _RARE.search(word)), False


def is_once(test: ast.expr, body: list[ast.stmt], outer: frozenset[str]) -> bool:
    """Return whether `if self.x is None:` stores self.x, so that it runs one time.

    Args:
        outer: Names declared `global` or `nonlocal`: one of them is as good as an attribute.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    right, left = test.comparators[0], test.left
    if not isinstance(test.ops[0], ast.Is):
        return _is_cache_miss(test, body)
    is_kept = isinstance(left, ast.Attribute) or (isinstance(left, ast.Name) and left.id in outer)
    if not (is_kept and isinstance(right, ast.Constant) and right.value is None):
        return False
    return any(
        type(target) is type(left) and _last(target) == _last(left) for target in _targets(body)
    )


def _is_cache_miss(test: ast.Compare, body: list[ast.stmt]) -> bool:
    """Return whether `if key not in cache:` stores cache[key]."""
    if not isinstance(test.ops[0], ast.NotIn):
        return False
    cache = _last(test.comparators[0])
    return bool(cache) and any(
        isinstance(target, ast.Subscript) and _last(target.value) == cache
        for target in _targets(body)
    )


def _targets(body: list[ast.stmt]) -> list[ast.expr]:
    found: list[ast.expr] = []
    for statement in body:
        if isinstance(statement, ast.Assign):
            found += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            found.append(statement.target)
    return found


def _trains(word: str) -> bool:
    return word in _TRAINING_NAMES or bool(_LABELS.search(word))


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
