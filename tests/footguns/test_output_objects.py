"""Outputs inside objects (sglang#31852: an output object passes uncloned)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from footguns.traces import alike
from graphs.replaying import check_replay, record, spoil
from ostinato import Outcome, Reason, graphed

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - the untyped kind must work too


class Typed(NamedTuple):
    left: Tensor
    right: Tensor | None = None


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()
    loss: Tensor | None = None
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    inner: Output
    count: int


class Named(dict):  # type: ignore[type-arg]
    """A dict with attributes, as many libraries have one."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def output(x: Tensor) -> Output:
    return Output(x * 2, (x + 1, x + 2), None, ["a", "b"])


REBUILT: dict[str, Callable[[Tensor], Any]] = {
    "dataclass": output,
    "frozen-in-dict": lambda x: {"a": Frozen(output(x), 3)},
    "nested-dict-none": lambda x: {"a": x * 2, "b": {"c": None, "d": [x + 1, None, (x + 2,)]}},
    "namedtuple": lambda x: Pair(x * 2, None),
    "typed-namedtuple": lambda x: Typed(x * 2),
    "ordered": lambda x: OrderedDict(z=x * 2, a=x + 1),
    "defaultdict": lambda x: defaultdict(list, a=x * 2),
    "empty": lambda x: ([], {}, (), None, x * 2),
    "values": lambda x: {"n": 3, "s": "text", "f": 1.5, "b": True, "y": x * 2, "d": x.dtype},
    "list-of-dataclasses": lambda x: [output(x), output(x + 1)],
    "int-keys": lambda x: {0: x * 2, (1, "b"): x + 1, None: x + 2},
}


@pytest.mark.parametrize("kind", REBUILT)
def test_an_output_is_rebuilt_with_its_type_and_owned_tensors(
    kind: str, device: torch.device
) -> None:
    fn = REBUILT[kind]
    g = record(fn, torch.zeros(3, device=device))
    kept = []
    for _ in range(4):
        x = torch.randn(3, device=device)
        kept.append((check_replay(g, x), fn(x)))
    for mine, wanted in kept:
        assert type(mine) is type(wanted)
        alike(mine, wanted)


def test_two_results_share_no_container(device: torch.device) -> None:
    g = record(REBUILT["nested-dict-none"], torch.zeros(3, device=device))
    first, second = g(torch.ones(3, device=device)), g(torch.ones(3, device=device))
    first["b"]["d"].append("mine")
    first["more"] = 1
    assert len(second["b"]["d"]) == 3
    assert "more" not in g(torch.ones(3, device=device))


def test_the_names_of_one_result_are_not_those_of_the_next(device: torch.device) -> None:
    g = record(output, torch.zeros(3, device=device))
    g(torch.ones(3, device=device)).names.append("mine")
    assert g(torch.ones(3, device=device)).names == ["a", "b"]


def test_a_model_output_keeps_its_type_its_order_and_what_is_none(device: torch.device) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def step(x: Tensor) -> Any:
        return outputs.CausalLMOutputWithPast(logits=x * 2, hidden_states=(x, x + 1), loss=None)

    g = record(step, torch.zeros(3, device=device))
    kept = []
    for _ in range(3):
        x = torch.randn(3, device=device)
        kept.append((check_replay(g, x), x))
    for result, x in kept:
        assert type(result) is outputs.CausalLMOutputWithPast
        assert result.loss is None
        assert list(result) == ["logits", "hidden_states"]
        assert result[0] is result["logits"] is result.logits
        alike([result.logits, result.hidden_states[1]], [x * 2, x + 1])
        assert result.hidden_states[0] is x


class Plain:
    def __init__(self, y: Tensor) -> None:
        self.y = y


class Slotted:
    __slots__ = ("y",)

    def __init__(self, y: Tensor) -> None:
        self.y = y


def closure(x: Tensor) -> Callable[[], Tensor]:
    y = x * 2
    return lambda: y


OPAQUE: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "object": (lambda x: Plain(x * 2), lambda r: r.y),
    "slotted": (lambda x: Slotted(x * 2), lambda r: r.y),
    "namespace": (lambda x: SimpleNamespace(y=x * 2), lambda r: r.y),
    "in-a-list": (lambda x: [x + 1, Plain(x * 2)], lambda r: r[1].y),
    "dict-subclass": (lambda x: Named(y=x * 2), lambda r: r.y),
    "set": (lambda x: {x * 2}, lambda r: next(iter(r))),
    "generator": (lambda x: iter([x * 2]), lambda r: next(r)),
    "closure": (closure, lambda r: r()),
    "numpy": (lambda x: (x * 2).cpu().numpy(), torch.from_numpy),
    "memoryview": (lambda x: memoryview((x * 2).cpu().numpy()), torch.as_tensor),
    "attribute-of-tensor": (lambda x: tagged(x), lambda r: r.tag),
}


def tagged(x: Tensor) -> Tensor:
    y = x + 1
    y.tag = x * 2  # type: ignore[attr-defined]
    return y


@pytest.mark.parametrize("kind", OPAQUE)
def test_an_object_that_cannot_be_opened_never_shows_another_calls_tensor(
    kind: str, device: torch.device
) -> None:
    """The kind itself: a leaf that hides a tensor would be handed out uncloned."""
    fn, read = OPAQUE[kind]
    g = graphed(fn, admit_after=1)
    xs = [torch.full((3,), float(i), device=device) for i in range(4)]
    results = []
    for x in xs:
        results.append(g(x))
        spoil(g)
    for x, result in zip(xs, results, strict=True):
        assert type(result) is type(fn(x))
        torch.testing.assert_close(read(result).cpu(), (x * 2).cpu())
    assert len({id(result) for result in results}) == len(xs)


def test_a_cache_object_as_output_is_the_calls_own(device: torch.device) -> None:
    cache_utils = pytest.importorskip("transformers.cache_utils")

    def step(x: Tensor) -> Any:
        cache = cache_utils.DynamicCache()
        cache.update(x * 2, x * 3, 0)
        return {"y": x + 1, "past": cache}

    g = graphed(step, admit_after=1)
    xs = [torch.full((1, 1, 2, 2), float(i), device=device) for i in range(4)]
    results = [g(x) for x in xs]
    for x, result in zip(xs, results, strict=True):
        torch.testing.assert_close(result["past"].layers[0].keys, x * 2)
        torch.testing.assert_close(result["past"].layers[0].values, x * 3)


def test_what_cannot_be_opened_has_a_reason(device: torch.device) -> None:
    g = graphed(lambda x: Plain(x * 2), admit_after=1)
    for _ in range(3):
        g(torch.zeros(3, device=device))
    assert g.last is not None
    assert g.last.outcome is Outcome.EAGER
    assert isinstance(g.last.reason, Reason)
    assert "Plain" in g.last.detail, g.last


def test_what_the_caller_writes_into_a_returned_container_reaches_the_function(
    device: torch.device,
) -> None:
    table: dict[str, int] = {}
    listed: list[int] = []
    g = graphed(lambda x: (x * 2, table, {"in": listed}), admit_after=1)
    x = torch.ones(2, device=device)
    for n in range(4):
        _, mine, nested = g(x)
        assert mine is table
        assert nested["in"] is listed
        mine["n"] = n
    assert table == {"n": 3}
    assert g.last is not None
    assert g.last.reason is Reason.UNSUPPORTED_OUTPUT
