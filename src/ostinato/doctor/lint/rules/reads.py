"""Values that the host reads: `.item()`, `if tensor:`, `print(tensor)`, a tensor as a slice bound.

The host stops until the GPU has done all that was queued (host-sync-in-step), and in a function
that torch.compile traces, the graph ends there (graph-breaks).
"""

from __future__ import annotations

import ast

from ostinato.doctor.lint import torch_names as torch_
from ostinato.doctor.lint.facts import Pause, Scope, Wants
from ostinato.doctor.lint.operations import is_host_device, known
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene, is_model_name, spot_of
from ostinato.doctor.lint.values import ARRAY, HOST, PYTHON, Kind, Trait, Value, comes_from_model

_CONVERSIONS = {"builtins.int": "int()", "builtins.float": "float()", "builtins.bool": "bool()"}
_SHOWING = {"builtins.str": "str()", "builtins.repr": "repr()", "builtins.format": "format()"}
_PAIRWISE = {"builtins.max": "max()", "builtins.min": "min()"}
_OVER_ITEMS = {"builtins.any": "any()", "builtins.all": "all()", "builtins.sorted": "sorted()"}
_BREAKS = {
    "builtins.print": "print() ends the compiled graph",
    "builtins.breakpoint": "breakpoint() ends the compiled graph",
    "builtins.input": "input() ends the compiled graph",
    "builtins.open": "open() ends the compiled graph",
    "torch._dynamo.graph_break": "graph_break() ends the compiled graph",
    "time.sleep": "time.sleep() ends the compiled graph",
}
_SIZED = frozenset({"torch.arange", "torch.zeros", "torch.ones", "torch.empty", "torch.full"})


def truth(scene: Scene, node: ast.expr, value: Value) -> None:
    """See an expression whose truth decides."""
    fact = "its truth decides a branch, so the host reads it"
    _host_reads(scene, node, fact, value, Wants.TENSOR)
    scene.sight(301, Scope.COMPILED, node, "the branch hangs on data", value, Wants.TENSOR)


def shown(scene: Scene, node: ast.expr, value: Value) -> None:
    """See a value that becomes text."""
    _host_reads(scene, node, "printing it copies it to the host", value, Wants.TENSOR)


def membership(scene: Scene, node: ast.expr, left: Value, right: Value) -> None:
    """See `x in items`."""
    value = left if left.kind in (Kind.TENSOR, Kind.SYMBOL) else right
    if left.kind is Kind.SYMBOL and right.kind is not Kind.TENSOR:
        return  # a key, more often than not
    if right.has(Trait.MAPPING):
        return  # tensors are told apart by what they are, as keys
    if right.kind in (Kind.EACH, Kind.ITEMS, Kind.PYTHON, Kind.TENSOR):
        _host_reads(scene, node, "`in` compares on the host", value, Wants.TENSOR)


def sliced(scene: Scene, node: ast.expr, bounds: list[Value]) -> None:
    """See the bounds of a slice."""
    for bound in bounds:
        if bound.kind is Kind.TENSOR:
            fact = "a slice bound is read on the host"
            _host_reads(scene, node, fact, bound, Wants.TENSOR)


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.attr in torch_.READS and not event.function:
        _method(scene, event)
    elif event.function in _CONVERSIONS:
        word = _CONVERSIONS[event.function]
        fact = f"{word} copies its value to the host"
        _host_reads(scene, event.node, fact, event.first, Wants.TENSOR)
        if word != "bool()":
            _remember(scene, event, event.first, is_float=word == "float()")
    elif event.function in _SHOWING:
        shown(scene, event.node, event.first)
    elif event.function in _PAIRWISE and len(event.args) > 1:
        for value in event.args:
            _host_reads(
                scene, event.node, "comparing two tensors in Python waits", value, Wants.TENSOR
            )
    elif event.function in _OVER_ITEMS and event.first.kind is Kind.TENSOR:
        fact = f"{_OVER_ITEMS[event.function]} reads the tensor item by item"
        _host_reads(scene, event.node, fact, event.first, Wants.TENSOR)
    elif event.function == "builtins.print":
        for node, value in zip(event.node.args, event.args, strict=False):
            shown(scene, node, value)
    elif event.function == "builtins.range" or event.function in _SIZED:
        for value in event.args:
            if value.kind is Kind.TENSOR:
                fact = "a size is read on the host"
                _host_reads(scene, event.node, fact, value, Wants.TENSOR)
    elif event.attr == "format" and event.base.kind is Kind.PYTHON:
        for node, value in zip(event.node.args, event.args, strict=False):
            shown(scene, node, value)
    if event.function in _BREAKS:
        scene.sight(301, Scope.COMPILED, event.node, _BREAKS[event.function])


def _method(scene: Scene, event: Event) -> None:
    attr, base, node = event.attr, event.base, event.node
    if attr == "cpu" and (_is_model(node) or event.args):
        return
    if attr in ("item", "tolist", "numpy") and base.kind in (Kind.UNKNOWN, Kind.SYMBOL):
        event.result = ARRAY if attr == "numpy" else PYTHON
    if attr == "cpu" and base.kind is Kind.UNKNOWN:
        event.result = HOST
    fact = f"`.{attr}()` {torch_.READS[attr]}"
    # On a GPU it would raise: what is not known to be there is on the host already.
    wants = Wants.TENSOR if attr == "numpy" else Wants.NOT_HOST
    scene.sight(101, Scope.STEP, node, fact, base, wants)
    # Others have `tolist` and `numpy` too; outside a step that is the likelier.
    is_telling = attr in ("item", "cpu")
    scene.wait(Pause.GPU, node, fact, base, Wants.NOT_HOST if is_telling else Wants.TENSOR)
    if attr in ("item", "tolist"):
        scene.sight(
            301, Scope.COMPILED, node, f"`.{attr}()` ends the compiled graph", base, Wants.NOT_HOST
        )
    if attr == "item" and scene.loops and event.result.kind is Kind.PYTHON:
        event.result = event.result.with_traits(Trait.VARIES)
    if attr != "cpu":
        _remember(scene, event, base)


def moved_to_host(scene: Scene, event: Event) -> None:
    """See `.to("cpu")`: the same wait as `.cpu()`, unless it is told not to block."""
    target = event.keyword("device") or (event.args[0] if event.args else None)
    blocking = known(event.keyword("non_blocking")) is not True
    if is_host_device(target) and blocking and not _is_model(event.node):
        fact = '`.to("cpu")` copies the tensor to the host'
        _host_reads(scene, event.node, fact, event.base, Wants.TENSOR)


def _remember(scene: Scene, event: Event, value: Value, *, is_float: bool = True) -> None:
    """Note that the result was read with its gradient lost, if it could have had one."""
    if not is_float or scene.inference or scene.function.inference:
        return
    is_known = value.kind is Kind.TENSOR or comes_from_model(value)
    if is_known and not value.has(Trait.NO_GRAD):
        event.result = event.result.with_read(spot_of(event.node))


def _host_reads(scene: Scene, node: ast.expr, fact: str, value: Value, wants: Wants) -> None:
    scene.sight(101, Scope.STEP, node, fact, value, wants)
    scene.wait(Pause.GPU, node, fact, value, wants)


def _is_model(node: ast.Call) -> bool:
    before = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    word = before.attr if isinstance(before, ast.Attribute) else ""
    word = before.id if isinstance(before, ast.Name) else word
    return is_model_name(word) or word == "self"
