"""How recordings are made and called: in a loop, with ever new keys, under autocast.

Each of these is seen where the recording is called or made, with no more than the function round
it: shape-churn, recapture-storm, address-drift, amp-switch-in-capture, over-keyed-cache,
recompiles.
"""

from __future__ import annotations

import ast

from ostinato.doctor.lint.facts import Scope
from ostinato.doctor.lint.operations import known
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import Kind, Trait, Value

_AUTOCASTS = frozenset({"torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast"})
_SWITCHES = frozenset({"torch.set_autocast_enabled", "torch.set_autocast_dtype"})
_NEW_SHAPE = "its shape changes with every round, and each shape is a recording of its own"
_NEW_NUMBER = "it is another number in every round, and each number is a recording of its own"
_SHAPED = (Kind.TENSOR, Kind.HOST, Kind.SYMBOL)
_AGAIN = {
    "graphed": (203, "it is recorded anew in every round: keep the runner outside the loop"),
    "compiled": (302, "it is compiled anew in every round: compile it once, outside the loop"),
}


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.attr == "replay" and isinstance(event.node.func, ast.Attribute):
        _replayed(scene, event.node.func.value, event.node)
    if event.target.kind is Kind.WRAPPED:
        _called_recording(scene, event)
    elif event.function in _SWITCHES:
        fact = "autocast is switched while a graph is recorded"
        scene.sight(205, Scope.CAPTURED, event.node, fact)
    elif event.attr == "replay" and scene.drifted:
        for spot, word in scene.drifted:
            fact = f"`{word}` is bound to another tensor; the graph goes on reading the old one"
            scene.sight(204, Scope.ALWAYS, spot, fact)
        scene.drifted.clear()


def _replayed(scene: Scene, graph: ast.expr, node: ast.expr) -> None:
    """See `graph.replay()` in the loop that made the graph."""
    made_in = scene.graphs.get(graph.id, ()) if isinstance(graph, ast.Name) else ()
    if made_in and made_in == scene.loops[: len(made_in)]:
        scene.sight(203, Scope.ALWAYS, node, "the graph is recorded anew in every round")


def _called_recording(scene: Scene, event: Event) -> None:
    how, _, made_in, has_buckets = event.target.of
    made_here = isinstance(event.node.func, ast.Call)
    in_the_same_loop = bool(made_in) and made_in == scene.loops[: len(made_in)]
    if in_the_same_loop:
        code, fact = _AGAIN[how]
        scene.sight(code, Scope.ALWAYS, event.node, fact)
    elif made_here and not scene.loops:
        code, fact = _AGAIN[how]
        scene.sight(code, Scope.STEP, event.node, fact)
    if scene.loops and not in_the_same_loop:
        if how == "graphed":
            _keys(scene, event, has_buckets)
        elif not has_buckets:
            _sizes(scene, event)


def _keys(scene: Scene, event: Event, has_buckets: bool) -> None:
    nodes = [*event.node.args, *(word.value for word in event.node.keywords)]
    values = [*event.args, *(value for _, value in event.keywords)]
    for node, value in zip(nodes, values, strict=False):
        if value.kind is Kind.PYTHON and (
            value.has(Trait.VARIES) or (value.has(Trait.LENGTH) and value.has(Trait.GROWS))
        ):
            scene.sight(208, Scope.ALWAYS, node, _NEW_NUMBER)
        elif value.kind in _SHAPED and value.has(Trait.GROWS) and not has_buckets:
            scene.sight(202, Scope.ALWAYS, node, _NEW_SHAPE)


def _sizes(scene: Scene, event: Event) -> None:
    """Note shapes that change under `torch.compile(..., dynamic=False)`."""
    for node, value in zip(event.node.args, event.args, strict=False):
        if value.kind in _SHAPED and value.has(Trait.GROWS):
            fact = "its shape changes with every round, and `dynamic=False` compiles each anew"
            scene.sight(302, Scope.ALWAYS, node, fact)


def entered(scene: Scene, node: ast.expr, dotted: str, keywords: dict[str, Value]) -> None:
    """See `with dotted(...):`."""
    if dotted in _AUTOCASTS:
        if known(keywords.get("cache_enabled")) is False or known(keywords.get("enabled")) is False:
            return
        fact = "autocast, with its cache of cast weights, is switched on while a graph is recorded"
        scene.sight(205, Scope.CAPTURED, node, fact)
    elif dotted == "torch.cuda.graph" and scene.autocast:
        fact = "a graph is recorded under autocast with its cache of cast weights on"
        scene.sight(205, Scope.ALWAYS, node, fact)


def is_caching_autocast(dotted: str, keywords: dict[str, Value]) -> bool:
    """Return whether `with dotted(...)` turns on autocast and its cache."""
    switched_off = ("cache_enabled", "enabled")
    return dotted in _AUTOCASTS and not any(
        known(keywords.get(word)) is False for word in switched_off
    )
