"""Where the reader stands: the function it is in, what its names hold, and what surrounds the line.

The rules write their sightings here. What cannot become a finding is dropped at once.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ostinato.doctor.lint.facts import (
    Call,
    Function,
    Loop,
    Module,
    Pause,
    Scope,
    Sighting,
    Wait,
    Wants,
)
from ostinato.doctor.lint.values import OUTPUT, UNKNOWN, Kind, Spot, Trait, Value, name

_BUILTINS = frozenset(dir(builtins))
_TENSOR_LIKE = (Kind.TENSOR, Kind.SYMBOL)
_MAYBE = (Kind.TENSOR, Kind.SYMBOL, Kind.UNKNOWN)
# Without these a function that is no part of a step may still tell something.
MODEL_NAME = re.compile(
    r"(?:^|_)(?:model|net|network|decoder|encoder|transformer|backbone|llm|gpt|pipe|pipeline"
    r"|module|unet|vae|bert|resnet)$",
    re.IGNORECASE,
)
# `load_model` and `_resolve_model` are no models.
_VERB = re.compile(
    r"^_*(?:resolve|load|delete|get|set|create|build|make|init|prepare|save|update|check|is|has"
    r"|register|unload|select|list|find|download|add|remove|with|convert|compile|wrap|export|fetch"
    r"|validate|count|print|show|test|start|stop|warm|move|reload|free|read|write|new|on|log|eval"
    r"|train|merge|copy|clone|ensure|setup|use|patch|register|launch|to|from|for|in)_",
    re.IGNORECASE,
)
STEP_LOOP_NAME = re.compile(
    r"(?:^|_)(?:generate|decode|decoding|sample|sampling|greedy|beam|infer|inference|predict"
    r"|stream|rollout|serve|evaluate|eval|validate|benchmark|complete|assisted)",
    re.IGNORECASE,
)


def is_model_name(word: str) -> bool:
    """Return whether this is what everybody calls a model."""
    return bool(MODEL_NAME.search(word)) and not _VERB.match(word)


def spot_of(node: ast.expr | ast.stmt) -> Spot:
    """Return where a node stands."""
    return Spot(
        node.lineno,
        node.col_offset,
        node.end_lineno or node.lineno,
        node.end_col_offset or node.col_offset,
    )


def kept_alive(env: dict[str, Value]) -> dict[str, Value]:
    """Return what names hold, as it is seen where pinned memory made before lives on."""
    return {key: value.without(Trait.MADE_HERE) for key, value in env.items()}


@dataclass(slots=True)
class Scene:
    """The state of one function while it is read.

    Attributes:
        env: What local names hold; "self.x" is a name too.
        loops: Numbers of the loops round this line.
        guards: How many branches round it run in training, once, or before an error.
        quiet: Above 0 while a loop is read for the first time: what it stores, not what it shows.
        handing: Above 0 in what is appended or yielded.
        copies: Calls in this statement that copy a transposed view.
        model_calls: Calls of a model: the loops round each, the names in it, and its line.
        looped_calls: Other calls in loops, the same of each, and its number.
        graphs: In which loops a name was given a new CUDA graph.
        frozen: Names that a CUDA graph read while it was recorded.
        outer: Names that are declared `global` or `nonlocal`.
        drifted: Where such a name was bound anew since.
    """

    module: Module
    function: Function
    env: dict[str, Value] = field(default_factory=dict)
    loops: tuple[int, ...] = ()
    locks: tuple[str, ...] = ()
    guards: int = 0
    inference: int = 0
    captured: int = 0
    autocast: int = 0
    quiet: int = 0
    awaited: bool = False
    handing: int = 0
    copies: list[ast.Call] = field(default_factory=list)
    model_calls: list[tuple[tuple[int, ...], frozenset[str], int]] = field(default_factory=list)
    looped_calls: list[tuple[tuple[int, ...], frozenset[str], int, int]] = field(
        default_factory=list
    )
    graphs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    outer: frozenset[str] = frozenset()
    drifted: list[tuple[Spot, str]] = field(default_factory=list)
    pending: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)

    def lookup(self, word: str) -> Value:
        """Return what a name holds here."""
        found = self.env.get(word)
        if found is not None:
            return found
        found = self.module.values.get(word)
        if found is not None:
            return found
        dotted = self.module.aliases.get(word)
        if dotted is not None:
            return name(dotted)
        return name(f"builtins.{word}") if word in _BUILTINS else UNKNOWN

    def own_attribute(self, class_: str, attr: str) -> Value | None:
        """Return an attribute of a class of this file that is plainly a tensor or a layer."""
        found = self.module.classes.get(class_)
        value = None if found is None else found.attributes.get(attr)
        if value is None or value.kind is Kind.TENSOR:
            return value
        is_layer = value.kind is Kind.INSTANCE and value.of.startswith("torch.nn.")
        return value if is_layer else None

    def dotted(self, node: ast.expr) -> str | None:
        """Return the dotted name that `a.b.c` stands for, imports followed; None for the rest."""
        if isinstance(node, ast.Name):
            held = self.lookup(node.id)
            if held.kind is Kind.NAME:
                return str(held.of)
            return node.id if held.kind is Kind.UNKNOWN else None
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return None if before is None else f"{before}.{node.attr}"
        return None

    @contextmanager
    def guarded(self, wanted: bool = True) -> Iterator[None]:
        """Read what runs only in training, once, or on the way to an error."""
        self.guards += wanted
        try:
            yield
        finally:
            self.guards -= wanted

    def sight(
        self,
        code: int,
        scope: Scope,
        node: ast.expr | ast.stmt | Spot,
        fact: str,
        value: Value = UNKNOWN,
        wants: Wants = Wants.ANYTHING,
    ) -> None:
        """Write down what may be a finding."""
        if self.quiet or (self.guards and scope is not Scope.ALWAYS):
            return
        if not _possible(value, wants):
            return
        if self.captured and scope in (Scope.STEP, Scope.CAPTURED):
            scope = Scope.ALWAYS
        spot = node if isinstance(node, Spot) else spot_of(node)
        self.function.sightings.append(
            Sighting(
                code,
                scope,
                spot,
                fact,
                value,
                wants,
                self.loops,
                bool(self.guards),
                bool(self.handing),
            )
        )

    def wait(
        self,
        pause: Pause,
        node: ast.expr | ast.stmt,
        fact: str,
        value: Value = UNKNOWN,
        wants: Wants = Wants.ANYTHING,
    ) -> None:
        """Write down that this line waits."""
        if self.quiet or not _possible(value, wants):
            return
        locked = self.locks[-1] if self.locks else None
        self.function.waits.append(
            Wait(pause, spot_of(node), fact, value, wants, locked, self.awaited, bool(self.guards))
        )

    def call(
        self,
        node: ast.expr,
        target: Value,
        args: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
    ) -> None:
        """Write down a call of something that may be in the project."""
        if self.quiet or target.kind not in (Kind.NAME, Kind.INSTANCE, Kind.SYMBOL, Kind.WRAPPED):
            return
        if target.kind is Kind.NAME and target.of.startswith(("builtins.", "torch.", "numpy.")):
            return
        if self.loops and isinstance(node, ast.Call):
            words = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            place = (self.loops, frozenset(words), node.lineno)
            self.looped_calls.append((*place, len(self.function.calls)))
        self.function.calls.append(
            Call(
                target,
                args,
                keywords,
                spot_of(node),
                self.loops,
                bool(self.guards),
                bool(self.captured),
                self.locks[-1] if self.locks else None,
                self.awaited,
            )
        )

    def open_loop(self) -> int:
        """Start a loop and return its number."""
        inference = (
            bool(self.inference)
            or self.function.inference
            or bool(STEP_LOOP_NAME.search(self.function.name.rpartition(".")[2]))
        )
        self.function.loops.append(Loop(False, inference))
        return len(self.function.loops) - 1

    def runs_model(self, node: ast.expr, *, replays: bool = False) -> None:
        """Note that a model is called here, or a graph of one replayed."""
        self.function.runs_model = True
        if self.loops:
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            self.model_calls.append((self.loops, frozenset(names), node.lineno))
        for number in self.loops:
            loop = self.function.loops[number]
            inference = loop.inference or bool(self.inference) or replays
            self.function.loops[number] = replace(loop, runs_model=True, inference=inference)


def _possible(value: Value, wants: Wants) -> bool:
    if wants is Wants.ANYTHING:
        return True
    if value == OUTPUT:
        return wants is not Wants.BOOL_TENSOR
    if wants is Wants.TENSOR:
        return value.kind in _TENSOR_LIKE
    if wants is Wants.BOOL_TENSOR:
        return value.kind is Kind.SYMBOL or (value.kind is Kind.TENSOR and value.has(Trait.BOOL))
    if wants is Wants.NOT_HOST:
        return value.kind in _MAYBE
    return value.kind not in (Kind.PYTHON, Kind.ARRAY, Kind.HOST, Kind.TENSOR)
