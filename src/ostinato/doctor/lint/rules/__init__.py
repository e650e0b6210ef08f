"""The rules: what each makes of the calls, tests and indexes that the reader comes across.

One file holds one idea. A rule never decides alone: it writes a sighting with its condition
(`facts.py`), and `project.py` knows whether the place is a step and the value a tensor. The words
of each rule stand in the catalogue that the whole doctor shares.
"""

from __future__ import annotations

import ast

from ostinato.doctor.lint.rules import (
    captures,
    copies,
    counted,
    layout,
    losses,
    reads,
    waits,
    workers,
    wrapping,
)
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import Kind, Value

truth = reads.truth
shown = reads.shown
membership = reads.membership
sliced = reads.sliced
indexed = counted.indexed
stored = counted.stored
awaiting = waits.awaiting
multiplied = waits.multiplied
entered = captures.entered


def called(
    scene: Scene,
    node: ast.Call,
    base: Value,
    target: Value,
    args: tuple[Value, ...],
    keywords: tuple[tuple[str, Value], ...],
    result: Value,
) -> Value:
    """Show a call to every rule; return what the call gives, with what the rules know of it."""
    attr = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    function = target.of if target.kind is Kind.NAME else ""
    event = Event(node, attr, function, base, target, args, keywords, result)
    wrapping.called(scene, event)
    reads.called(scene, event)
    counted.called(scene, event)
    copies.called(scene, event)
    waits.called(scene, event)
    captures.called(scene, event)
    layout.called(scene, event)
    losses.called(scene, event)
    workers.called(scene, event)
    scene.call(node, target, args, keywords)
    return event.result
