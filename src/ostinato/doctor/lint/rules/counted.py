"""Results whose size hangs on values: `nonzero`, `unique`, `x[mask]`, one-argument `where`.

The device counts, and the host must read the count before it can allocate the result.
"""

from __future__ import annotations

import ast

from ostinato.doctor.lint import torch_names as torch_
from ostinato.doctor.lint.facts import Pause, Scope, Wants
from ostinato.doctor.lint.operations import known
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import Kind, Trait, Value

_MASK = "a boolean index selects as many rows as are true, and the host reads how many"


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    word, subject = event.subject()
    if not word:
        return
    wants = Wants.NOT_HOST if event.function else Wants.TENSOR
    if word in torch_.COUNTED:
        if word == "bincount" and event.keyword("minlength") is not None:
            return
        _size_is_read(scene, event, f"`{word}`: {torch_.COUNTED[word]}", subject, wants)
    elif word in torch_.HOST_ANSWERS:
        _size_is_read(scene, event, f"`{word}`: {torch_.HOST_ANSWERS[word]}", subject, wants)
    elif word == "where" and event.function and len(event.args) == 1 and not event.keywords:
        _size_is_read(scene, event, "`where` with one argument is `nonzero`", subject, wants)
    elif word == "repeat_interleave":
        _repeats(scene, event)
    elif event.function == "torch.nn.functional.one_hot":
        classes = event.args[1] if len(event.args) > 1 else event.keyword("num_classes")
        if classes is None or known(classes) == -1:
            fact = "`one_hot` without num_classes reads the largest class on the host"
            _size_is_read(scene, event, fact, subject, wants)


def _repeats(scene: Scene, event: Event) -> None:
    place = 1 if event.function else 0
    repeats = event.args[place] if len(event.args) > place else event.keyword("repeats")
    if repeats is not None and event.keyword("output_size") is None:
        fact = "`repeat_interleave` without output_size reads the sum of the repeats on the host"
        _size_is_read(scene, event, fact, repeats, Wants.TENSOR)


def _size_is_read(scene: Scene, event: Event, fact: str, value: Value, wants: Wants) -> None:
    scene.sight(101, Scope.STEP, event.node, fact, value, wants)
    scene.wait(Pause.GPU, event.node, fact, value, wants)


def indexed(scene: Scene, node: ast.Subscript, base: Value, index: Value) -> None:
    """See `x[index]` being read."""
    if base.kind not in (Kind.TENSOR, Kind.SYMBOL, Kind.UNKNOWN, Kind.INSTANCE):
        return
    bools = Wants.BOOL_TENSOR
    for part in index.of if index.kind is Kind.ITEMS else (index,):
        if part.kind is Kind.TENSOR and part.has(Trait.BOOL):
            value, wants = (base, Wants.TENSOR) if base.kind is Kind.TENSOR else (part, bools)
        elif part.kind is Kind.SYMBOL:
            value, wants = part, bools
        else:
            continue
        # The mask decides: one that is on a device has a tensor on a device before it.
        scene.sight(101, Scope.STEP, node, _MASK, value, wants)
        scene.wait(Pause.GPU, node, _MASK, value, wants)


def stored(scene: Scene, node: ast.Subscript, base: Value, index: Value, value: Value) -> None:
    """See `x[index] = value`: one number for all is a masked fill, which does not wait."""
    if value.kind is Kind.TENSOR and not value.has(Trait.SCALAR):
        indexed(scene, node, base, index)
