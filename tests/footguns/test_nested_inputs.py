"""Tensors deep inside arguments (torchtitan#4432: nested inputs frozen as constants)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import check_replay, record, spoil
from ostinato import Outcome, graphed


def micro_batches(batches: list[tuple[tuple[Tensor, ...], dict[str, Any]]]) -> Tensor:
    total = batches[0][0][0] * 0
    for args, kwargs in batches:
        mask = kwargs.get("mask")
        total = total + args[0] * kwargs["scale"]
        if mask is not None:
            total = total * mask
    return total


def make_batches(device: torch.device, masked: tuple[bool, ...]) -> Any:
    def draw() -> Tensor:
        return torch.randn(3, device=device)

    return [((draw(),), {"scale": draw(), "mask": draw() if has else None}) for has in masked]


def test_every_tensor_of_every_micro_batch_is_refreshed(device: torch.device) -> None:
    g = record(micro_batches, make_batches(device, (True, False, True)))
    for _ in range(4):
        check_replay(g, make_batches(device, (True, False, True)))


def test_a_tensor_in_the_place_of_none_is_another_signature(device: torch.device) -> None:
    g = graphed(micro_batches, admit_after=1)
    kinds = [(True, False), (False, True), (False, False), (True, True), (True,)]
    for masked in kinds * 3:
        spoil(g)
        given = make_batches(device, masked)
        alike(g(given), micro_batches(given))
    assert g.report().recordings == len(kinds)
    assert g.report().replays == 2 * len(kinds)


@dataclass
class Batch:
    ids: Tensor
    extra: dict[str, Any]
    mask: Tensor | None = None


def of_batches(*batches: Batch, more: Batch | None = None) -> Tensor:
    every = [*batches, *([more] if more else [])]
    return sum(
        (b.ids * b.extra["w"][0] + (0 if b.mask is None else b.mask) for b in every),
        start=torch.zeros(3, device=batches[0].ids.device),
    )


def test_dataclasses_in_args_and_kwargs_are_refreshed(device: torch.device) -> None:
    def make(masked: bool) -> Batch:
        x = torch.randn(3, 3, device=device)
        return Batch(x[0], {"w": [x[1]], "n": None}, x[2] if masked else None)

    g = graphed(of_batches, admit_after=1)
    for masked in (True, False) * 4:
        args, more = (make(masked), make(not masked)), make(masked)
        spoil(g)
        alike(g(*args, more=more), of_batches(*args, more=more))
    assert g.report().recordings == 2
    assert g.report().replays == 6


def test_one_tensor_changed_alone_is_seen_wherever_it_lies(device: torch.device) -> None:
    given = make_batches(device, (True, True))
    g = record(micro_batches, given)
    for args, kwargs in given:
        for tensor in (*args, kwargs["scale"], kwargs["mask"]):
            tensor.add_(1.0)
            check_replay(g, given)


def test_python_values_deep_inside_are_part_of_the_signature(device: torch.device) -> None:
    def step(options: dict[str, Any]) -> Tensor:
        return options["x"] * options["scale"]["by"][0] + len(options["name"])

    g = graphed(step, admit_after=1)
    for by, name in ((2, "a"), (3, "a"), (2.0, "a"), (True, "a"), (2, "bb")) * 2:
        options = {"x": torch.randn(3, device=device), "scale": {"by": [by]}, "name": name}
        alike(g(options), step(options))


class Box:
    def __init__(self, x: Tensor) -> None:
        self.x = x


class SlottedBox:
    __slots__ = ("x",)

    def __init__(self, x: Tensor) -> None:
        self.x = x


OBJECTS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "object": (Box, lambda b: b.x * 2),
    "slotted": (SlottedBox, lambda b: b.x * 2),
    "namespace": (lambda x: SimpleNamespace(x=x), lambda b: b.x * 2),
    "deep-object": (lambda x: [{"b": Box([x])}], lambda b: b[0]["b"].x[0] * 2),  # type: ignore[arg-type]
    "set": (lambda x: {x}, lambda b: next(iter(b)) * 2),
    "closure": (lambda x: lambda: x, lambda b: b() * 2),
    "partial": (lambda x: functools.partial(torch.add, x), lambda b: b(1)),
    "bound-method": (lambda x: Box(x).__getattribute__, lambda b: b("x") * 2),
    "module": (lambda x: Holding(x), lambda m: m() * 2),
    "iterator": (lambda x: iter([x]), lambda b: next(b) * 2),
}


class Holding(nn.Module):
    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("x", x)

    def forward(self) -> Tensor:
        return self.x


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_tensor_hidden_in_an_object_is_never_frozen(kind: str, device: torch.device) -> None:
    make, step = OBJECTS[kind]
    g = graphed(step, admit_after=1)
    for number in range(5):
        x = torch.full((3,), float(number), device=device)
        alike(g(make(x)), step(make(x)))


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
@pytest.mark.parametrize("kind", ["object", "slotted", "namespace"])
def test_an_object_whose_tensor_is_exchanged_is_never_frozen(
    kind: str, device: torch.device
) -> None:
    make, step = OBJECTS[kind]
    g = graphed(step, admit_after=1)
    box = make(torch.zeros(3, device=device))
    for number in (1, 1, 2, 3, 3, 4):
        box.x = torch.full((3,), float(number), device=device)
        alike(g(box), box.x * 2)


def test_a_cache_given_as_an_argument_is_the_callers(device: torch.device) -> None:
    cache_utils = pytest.importorskip("transformers.cache_utils")

    def step(x: Tensor, cache: Any) -> Tensor:
        keys, values = cache.update(x, x * 2, 0)
        return keys.sum(2) + values.sum(2)

    g = graphed(step, admit_after=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            mine, theirs = cache_utils.DynamicCache(), cache_utils.DynamicCache()
            for _ in range(4):
                x = torch.randn(1, 1, 2, 2, device=device)
                alike(g(x, mine), step(x, theirs))
                alike(mine.layers[0].keys, theirs.layers[0].keys)


def test_the_same_tensor_in_two_places_stays_one(device: torch.device) -> None:
    def step(pair: dict[str, Tensor]) -> Tensor:
        pair["a"].add_(1)
        return pair["a"] + pair["b"]

    g = graphed(step, admit_after=1)
    for is_shared in (True, False) * 3:
        a = torch.randn(3, device=device)
        b = a if is_shared else a.clone()
        twin_a = a.clone()
        twin_b = twin_a if is_shared else b.clone()
        alike(g({"a": a, "b": b}), step({"a": twin_a, "b": twin_b}))
        alike(a, twin_a)
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    assert g.report().recordings == 2
