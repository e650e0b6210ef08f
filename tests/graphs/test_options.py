"""Options: checked when `graphed` is called, each with an error that says what to pass instead."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ostinato
from graphs.replaying import check_replay, record
from ostinato import Buckets, UsageError, graphed
from ostinato.graphs import Outcome, Reason, Runner


def step(x: Tensor, scale: float = 2.0) -> Tensor:
    """Scale."""
    return x * scale


BAD: list[tuple[dict[str, Any], type[Exception], str, str]] = [
    ({"admit_after": 0}, ValueError, "OST1011", "admit_after cannot be 0"),
    ({"admit_after": 1.5}, TypeError, "OST1011", "admit_after cannot be 1.5"),
    ({"admit_after": True}, TypeError, "OST1011", "admit_after cannot be True"),
    ({"warmups": -1}, ValueError, "OST1011", "warmups cannot be -1"),
    ({"warmups": "3"}, TypeError, "OST1011", "warmups cannot be '3'"),
    ({"verify_every": -2}, ValueError, "OST1011", "verify_every cannot be -2"),
    ({"outputs": "mine"}, ValueError, "OST1011", "pass one of 'owned', 'leased'"),
    ({"outputs": ["owned"]}, ValueError, "OST1011", "outputs cannot be"),
    ({"outputs": np.ones(2)}, ValueError, "OST1011", "outputs cannot be array"),
    ({"on_unfit": "warn"}, ValueError, "OST1011", "pass one of 'eager', 'raise'"),
    ({"backend": "gpu"}, ValueError, "OST1011", "pass one of 'auto', 'cuda', 'tape', 'eager'"),
    ({"drop_unprofitable": 1}, TypeError, "OST1011", "pass True or False"),
    ({"budget": "2 parsecs"}, ValueError, "OST1001", "2 parsecs"),
    ({"budget": -5}, ValueError, "OST1001", "-5"),
    ({"budget": None}, ValueError, "OST1001", "None"),
    ({"buckets": [("x", 1)]}, TypeError, "OST1011", "pass a mapping"),
    ({"buckets": {"x": (1, 2)}}, TypeError, "OST1011", "ostinato.Buckets"),
    ({"buckets": {1: Buckets(0, (1,))}}, TypeError, "OST1011", "name or path"),
    ({"buckets": {"y": Buckets(0, (1,))}}, ValueError, "OST1012", "scale, x"),
]


@pytest.mark.parametrize(("options", "kind", "code", "text"), BAD, ids=lambda v: str(v)[:40])
def test_a_bad_option_is_named_with_its_value_and_a_remedy(
    options: dict[str, Any], kind: type[Exception], code: str, text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        graphed(step, **options)
    assert isinstance(caught.value, kind)
    assert caught.value.code == code
    assert text in str(caught.value)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="bukets"):
        graphed(step, bukets={})  # type: ignore[call-overload]


def test_a_decorator_with_bad_options_fails_before_it_sees_the_function() -> None:
    with pytest.raises(UsageError, match="admit_after cannot be 0"):
        graphed(admit_after=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_the_cuda_backend_is_refused_where_there_is_no_gpu() -> None:
    with pytest.raises(UsageError, match="sees no CUDA device"):
        graphed(step, backend="cuda")


async def coroutine(x: Tensor) -> Tensor:
    return x


async def stream(x: Tensor) -> Any:
    yield x


def generator(x: Tensor) -> Iterator[Tensor]:
    yield x


class Streams:
    def __call__(self, x: Tensor) -> Iterator[Tensor]:
        yield x

    async def wait(self, x: Tensor) -> Tensor:
        return x


class Forward(nn.Module):
    def forward(self, x: Tensor) -> Iterator[Tensor]:
        yield x


UNFIT = {
    "coroutine": coroutine,
    "async-generator": stream,
    "generator": generator,
    "partial-of-a-generator": functools.partial(generator),
    "object-that-generates": Streams(),
    "method-that-awaits": Streams().wait,
    "module-that-generates": Forward(),
    "class": nn.Linear,
    "module-of-parts": nn.ModuleList([nn.Linear(1, 1)]),
    "module-without-forward": nn.Module(),
    "nothing": None,
    "number": 3,
    "text": "step",
    "tensor": torch.ones(1),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_is_no_plain_callable_is_refused(kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        graphed(UNFIT[kind])  # type: ignore[call-overload]
    assert isinstance(caught.value, TypeError)
    assert caught.value.code == "OST1010"


def test_none_is_told_as_what_it_mostly_is_and_is_no_decorator() -> None:
    for options in ({}, {"admit_after": 1}):
        with pytest.raises(UsageError, match="got None") as caught:
            graphed(None, **options)  # type: ignore[call-overload]
        assert "not loaded" in caught.value.remedy


def test_a_module_whose_forward_stands_in_the_instance_or_is_not_needed_is_none_without() -> None:
    class Calls(nn.Module):
        def __call__(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return x * 2

    given = nn.Module()
    given.forward = lambda x: x * 2
    x = torch.ones(2)
    for module in (Calls(), given):
        assert torch.equal(graphed(module)(x), x * 2)


def test_a_value_of_several_lines_is_shown_in_one() -> None:
    with pytest.raises(UsageError) as caught:
        graphed(step, scratch=torch.optim.SGD([torch.ones(1)]))  # type: ignore[call-overload]
    assert "\n" not in caught.value.args[0]


# Forms.


def test_a_bare_decorator_keeps_name_and_docstring(device: torch.device) -> None:
    @graphed
    def scale(x: Tensor) -> Tensor:
        """Twice."""
        return x * 2

    assert isinstance(scale, Runner)
    assert (scale.__name__, scale.__doc__) == ("scale", "Twice.")
    x = torch.ones(2, device=device)
    scale(x), scale(x)
    check_replay(scale, x)


def test_a_decorator_with_options_follows_them(device: torch.device) -> None:
    @graphed(admit_after=1, outputs="leased")
    def scale(x: Tensor) -> Tensor:
        return x * 2

    x = torch.ones(2, device=device)
    scale(x)
    assert scale(x).get().tolist() == [2.0, 2.0]  # type: ignore[attr-defined]
    assert scale.last is not None
    assert scale.last.outcome is Outcome.REPLAYED


def test_a_decorated_method_records_for_each_instance(device: torch.device) -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = torch.full((2,), by, device=device)

        @graphed(admit_after=1)
        def run(self, x: Tensor, *, more: float = 0.0) -> Tensor:
            return x * self.by + more

    x = torch.ones(2, device=device)
    two, three = Scale(2.0), Scale(3.0)
    for _ in range(3):
        assert two.run(x).tolist() == [2.0, 2.0]
        assert three.run(x, more=1.0).tolist() == [4.0, 4.0]
    assert Scale.run.report().to_dict()["replays"] == 4


def test_a_decorated_forward_makes_a_module_replay(device: torch.device) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        @graphed(admit_after=1)
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    net = Net().to(device).requires_grad_(False)
    x = torch.ones(1, 2, device=device)
    for _ in range(3):
        torch.testing.assert_close(net(x), net.inner(x))
    assert Net.forward.last.outcome is Outcome.REPLAYED
    net.inner.weight.mul_(2)
    torch.testing.assert_close(net(x), net.inner(x))
    assert Net.forward.last.outcome is Outcome.REPLAYED


class Adds:
    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.amount

    def method(self, x: Tensor) -> Tensor:
        return x - self.amount

    @staticmethod
    def static(x: Tensor) -> Tensor:
        return x * 7

    @classmethod
    def of_class(cls, x: Tensor) -> Tensor:
        return x * 8


CALLABLES = {
    "lambda": lambda x: x * 2,
    "builtin": torch.relu,
    "functional": nn.functional.gelu,
    "tensor-method": Tensor.exp,
    "operator": torch.ops.aten.sin,
    "partial": functools.partial(step, scale=3.0),
    "partial-of-a-builtin": functools.partial(torch.mul, 3.0),
    "object": Adds(1.0),
    "method": Adds(1.0).method,
    "static": Adds.static,
    "class-method": Adds.of_class,
    "module": nn.GELU(),
    "graphed": graphed(step),
    "no-grad": torch.no_grad()(step),
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_any_callable_is_replayed(kind: str, device: torch.device) -> None:
    g = record(CALLABLES[kind], torch.randn(3, device=device))
    for _ in range(2):
        check_replay(g, torch.randn(3, device=device))


def test_the_eager_backend_never_records(device: torch.device) -> None:
    g = graphed(step, admit_after=1, backend="eager")
    for _ in range(3):
        assert g(torch.ones(1, device=device)).tolist() == [2.0]
    assert g.last is not None
    assert g.last.reason is Reason.EAGER_BACKEND


def test_a_recording_is_made_at_the_call_that_was_asked_for(device: torch.device) -> None:
    g = graphed(step, admit_after=4)
    outcomes = []
    for _ in range(5):
        g(torch.ones(1, device=device))
        assert g.last is not None
        outcomes.append(str(g.last.outcome))
    assert outcomes == ["eager", "eager", "eager", "recorded", "replayed"]


def test_the_package_offers_it() -> None:
    assert ostinato.graphed is graphed


def of_batch(batch: dict[str, torch.Tensor], more: Any = None) -> torch.Tensor:
    return batch["ids"] * 2.0


WRONG_PATHS: list[tuple[Any, dict[str, Any], str, str]] = [
    (of_batch, {"batch": {"ids": torch.ones(3)}}, "batch.idz", "batch.ids"),
    (of_batch, {"batch": {"ids": torch.ones(3)}}, "batch", "batch.ids"),
    (lambda xs: xs[0] * 2, {"xs": [torch.ones(3), torch.ones(3)]}, "xs.7", "xs.0, xs.1"),
]


@pytest.mark.parametrize(("fn", "call", "path", "text"), WRONG_PATHS)
def test_a_path_of_buckets_that_leads_nowhere_is_named_at_every_call(
    fn: Any, call: dict[str, Any], path: str, text: str
) -> None:
    g = graphed(fn, admit_after=1, buckets={path: Buckets(0, (4, 8))})
    for _ in range(2):
        with pytest.raises(UsageError, match=f"{path!r}, and the call has") as found:
            g(**call)
        assert found.value.code == "OST1012"
        assert found.value.remedy.endswith(text)


def test_what_a_call_leaves_out_says_nothing_about_the_path() -> None:
    paths = {"batch.ids": Buckets(0, (4, 8)), "more.mask": Buckets(0, (4, 8))}
    g = graphed(of_batch, admit_after=1, buckets=paths)
    batch = {"ids": torch.ones(3)}
    for more in ({}, {"more": None}, {"more": {"mask": torch.ones(3)}}, {"more": {"other": 1}}):
        assert g(batch, **more).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(UsageError, match=r"batch\.ids"):
        graphed(of_batch, buckets=paths)({"other": torch.ones(3)})


@pytest.mark.parametrize("rows", [3, 4, 9])
@pytest.mark.parametrize("admit_after", [1, 5])
def test_a_fill_that_the_dtype_cannot_hold_is_named_at_every_call(
    rows: int, admit_after: int
) -> None:
    g = graphed(step, admit_after=admit_after, buckets={"x": Buckets(0, (4, 8), 300)})
    for _ in range(3):
        with pytest.raises(UsageError, match=r"fill 300 of 'x' does not fit torch\.uint8") as found:
            g(torch.ones(rows, dtype=torch.uint8))
        assert found.value.code == "OST1004"
    assert g(torch.ones(3)).shape == (3,)
