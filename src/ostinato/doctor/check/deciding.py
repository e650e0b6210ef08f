"""Whether a number that Python reads from a tensor chooses which way the code goes. Pure.

The number that a check assumes takes one way only. From the source of the function alone: the
read is followed through comparisons, arithmetic, conversions and local names, up to a condition or
a count of rounds. What leaves the function, or goes into a call that is not known here, is not
followed, and no answer is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

_CARRIES = frozenset(
    {"int", "float", "bool", "abs", "round", "min", "max", "sum", "any", "all", "sorted", "divmod"}
)
"""Built-in functions whose result follows from the values that they are given."""
_READS = frozenset({"item", "tolist", "numpy"})
_CONVERTS = frozenset({"int", "float", "complex", "range", "round"})
"""The calls that read by themselves; any other that begins at the place has the read inside."""
_ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)


def branch_decided_by(source: str, line: int, column: int) -> int | None:
    """Return the line of the branch that a read decides; None where none is seen.

    Args:
        source: The whole file.
        line: Of the call that reads, from 1.
        column: Where that call begins, from 1, in bytes as Python counts them.
    """
    tree = _parsed(source)
    if tree is None or column < 1:
        return None
    read = next(_calls_at(tree.root, line, column - 1), None)
    return None if read is None else _followed(tree, read, set())


class _Tree:
    """A parsed file; `above` says what each node is part of."""

    def __init__(self, root: ast.Module) -> None:
        self.root = root
        self.above = {
            child: node for node in ast.walk(root) for child in ast.iter_child_nodes(node)
        }

    def scope(self, node: ast.AST) -> ast.AST:
        node = self.above[node]
        while not isinstance(node, _SCOPES):
            node = self.above[node]
        return node


@lru_cache(maxsize=64)
def _parsed(source: str) -> _Tree | None:
    try:
        return _Tree(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _calls_at(root: ast.Module, line: int, offset: int) -> Iterator[ast.Call]:
    """Yield the calls that begin there and read, the longest first."""
    for node in ast.walk(root):
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset) == (line, offset):
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _READS
            if is_method or _name_of(node) in _CONVERTS:
                yield node


def _followed(tree: _Tree, node: ast.AST, known: set[ast.AST]) -> int | None:
    """Climb from a value to what is made of it, for as long as that follows from the value."""
    while True:
        above = tree.above[node]
        if _is_condition(above, node) or _counts_rounds(tree, above):
            return _line_of(above, node)
        if name := _bound(above, node):
            found = _from_name(tree, name, known)
            if found is not None or not isinstance(above, ast.NamedExpr):
                return found
        elif not _carries(above, node):
            return None
        node = above


def _line_of(above: ast.AST, node: ast.AST) -> int:
    """Return the line of a branch; a comprehension has none, and its condition stands for it."""
    for each in (above, node):
        if isinstance(each, ast.expr | ast.stmt):
            return each.lineno
    raise AssertionError("a condition is an expression")


def _is_condition(above: ast.AST, node: ast.AST) -> bool:
    if isinstance(above, ast.If | ast.While | ast.IfExp | ast.Assert):
        return above.test is node
    if isinstance(above, ast.comprehension):
        return node in above.ifs
    if isinstance(above, ast.Match):
        return above.subject is node
    return isinstance(above, ast.BoolOp) and above.values[-1] is not node


def _counts_rounds(tree: _Tree, call: ast.AST) -> bool:
    """Whether this is the `range(...)` of a loop."""
    if not (isinstance(call, ast.Call) and _name_of(call) == "range"):
        return False
    loop = tree.above[call]
    return isinstance(loop, ast.For | ast.comprehension) and loop.iter is call


def _carries(above: ast.AST, node: ast.AST) -> bool:
    match above:
        case ast.Compare():
            return not any(isinstance(each, ast.Is | ast.IsNot) for each in above.ops)
        case ast.Call():
            return _name_of(above) in _CARRIES and node in above.args
        case ast.Subscript():
            return above.value is node
        case ast.IfExp():
            return True
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp():
            return True
    return False


def _name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _bound(above: ast.AST, node: ast.AST) -> ast.Name | None:
    """Return the local name that is given the value, if that is all the statement does."""
    if isinstance(above, ast.Assign) and above.value is node and len(above.targets) == 1:
        target: ast.expr = above.targets[0]
    elif isinstance(above, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and above.value is node:
        target = above.target
    else:
        return None
    return target if isinstance(target, ast.Name) else None


def _from_name(tree: _Tree, bound: ast.Name, known: set[ast.AST]) -> int | None:
    """Follow each use of a name up to where it is given another value, in the order of lines."""
    if bound in known:
        return None
    known.add(bound)
    scope = tree.scope(bound)
    names = sorted(
        (
            each
            for each in ast.walk(scope)
            if isinstance(each, ast.Name) and each.id == bound.id and tree.scope(each) is scope
        ),
        key=lambda each: _order(tree, each),
    )
    for name in names[names.index(bound) + 1 :]:
        if isinstance(name.ctx, ast.Load):
            found = _followed(tree, name, known)
            if found is not None:
                return found
        elif not isinstance(tree.above[name], ast.AugAssign):
            return None  # from here on it is another value
    return None


def _order(tree: _Tree, name: ast.Name) -> tuple[int, int]:
    """Return when a name is read or given a value: the right-hand side comes first."""
    above = tree.above[name]
    if isinstance(above, _ASSIGNS) and not isinstance(name.ctx, ast.Load):
        return above.end_lineno or above.lineno, above.end_col_offset or 0
    return name.lineno, name.col_offset
