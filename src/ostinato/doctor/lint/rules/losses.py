"""Host reads whose value goes on into a loss: no gradient flows back through a Python number."""

from __future__ import annotations

import ast
import re

from ostinato.doctor.lint import torch_names as torch_
from ostinato.doctor.lint.facts import Scope
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.values import Kind, Value

_CRITERION = re.compile(r"(?:^|_)(?:criterion|loss_fn|loss_fct|loss_func|loss|objective)$", re.I)
_LOSS = re.compile(r"(?:^|_)loss$", re.I)
# Sums for a log or a bar are no loss.
_BOOKKEEPING = re.compile(r"total|running|epoch|avg|mean|sum|log|best|last|val_|ema|hist", re.I)
_FACT = "no gradient flows back through a number that was read on the host, and it is in the loss"


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.attr == "backward" and not event.function:
        scene.function.trains = True
        _lost(scene, event.base)
    elif event.attr == "step" and "optim" in ast.dump(event.node.func):
        scene.function.trains = True
    elif _is_loss_function(event):
        for value in event.args:
            _lost(scene, value)


def _is_loss_function(event: Event) -> bool:
    if event.function.startswith("torch.nn.functional."):
        return event.function.rpartition(".")[2] in torch_.LOSS_FUNCTIONS
    if event.target.kind is Kind.INSTANCE:
        return bool(event.target.of.startswith("torch.nn.") and event.target.of.endswith("Loss"))
    func = event.node.func
    word = func.id if isinstance(func, ast.Name) else event.attr
    return bool(_CRITERION.search(word)) and len(event.args) >= 2


def assigned(scene: Scene, target: ast.expr, value: Value) -> None:
    """See an assignment: `loss = loss + 0.1 * penalty.item()` has lost the penalty."""
    word = target.id if isinstance(target, ast.Name) else ""
    if value.kind is Kind.TENSOR and _LOSS.search(word) and not _BOOKKEEPING.search(word):
        _lost(scene, value)


def _lost(scene: Scene, value: Value) -> None:
    if value.read is not None and not scene.inference:
        scene.sight(105, Scope.ALWAYS, value.read, _FACT)
