"""Results: what eager gives, with its types, owned by the caller for ever."""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_replay, record, spoil
from ostinato import graphed
from ostinato.graphs import OstinatoWarning, Outcome, Reason

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024


@dataclass(frozen=True)
class Scored:
    score: Tensor
    label: str
    rest: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.score, Tensor):
            raise TypeError("no tensor")


def values(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


RESULTS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda x: x + 1,
    "none": lambda x: x.add_(1) and None if False else None,
    "dict": lambda x: {"a": x + 1, "b": {"c": x * 2, "n": None, "k": 3, "s": "text"}},
    "list": lambda x: [x + 1, [x + 2, 1.5], ()],
    "tuple": lambda x: (x + 1, (x + 2,), True),
    "namedtuple": lambda x: Pair(x + 1, Pair(x, None)),
    "dataclass": lambda x: Scored(x + 1, "good", Scored(x * 2, "inner", [x])),
    "torch-max": lambda x: x.max(dim=0),
    "torch-topk": lambda x: {"top": x.topk(2, dim=0)},
    "nan": lambda x: (x, float("nan"), -0.0, x.dtype, x.shape),
    "twice": lambda x: (lambda y: (y, y, [y]))(x + 1),
    "view-and-base": lambda x: (lambda y: (y[1:], y, y.view(torch.int32)))(x + 1),
    "overlapping-views": lambda x: (lambda y: (y[:3], y[1:]))(x + 1),
    "transposed": lambda x: (x + 1).t(),
    "expanded": lambda x: (x.sum(0, keepdim=True) + 1).expand(7, 3),
    "expanded-number": lambda x: x.sum().expand(5, 4),
    "flipped-strides": lambda x: torch.empty_strided(
        (4, 3), (1, 8), device=x.device
    ).copy_(x),
    "slice-of-large": lambda x: (x.repeat(100, 1) + 1)[:2],
    "zero-dim": lambda x: x.sum(),
    "empty": lambda x: (x + 1)[:0],
    "conjugated": lambda x: torch.complex(x, x * 2).conj(),
    "constant-tensor": lambda x: torch.zeros(3, device=x.device),
}  # fmt: skip


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_has_the_structure_types_and_strides_of_eager(
    kind: str, device: torch.device
) -> None:
    fn = RESULTS[kind]
    g = record(fn, values(device, 4, 3))
    kept = []
    for _ in range(3):
        x = values(device, 4, 3)
        kept.append((check_replay(g, x), fn(x.clone()), fn))
    spoil(g)
    for result, expected, _ in kept:
        torch.testing.assert_close(_tensors(result), _tensors(expected))


def _tensors(value: Any) -> list[Tensor]:
    from ostinato.graphs.tree import flatten

    return [leaf for leaf in flatten(value)[0] if isinstance(leaf, Tensor)]


# Results that are, or look into, an argument.

GIVEN: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda x: x,
    "itself-twice": lambda x: (x, [x]),
    "itself-written": lambda x: x.add_(1),
    "view": lambda x: x[1:],
    "view-of-view": lambda x: x[1:].view(-1)[2:],
    "view-of-view-of-another-dtype": lambda x: x[1:].view(torch.int32).t(),
    "narrower-dtype": lambda x: x.view(torch.uint8),
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x.unsqueeze(0).expand(2, 4, 3),
    "detached": lambda x: x.detach(),
    "view-and-new": lambda x: (x[0], x + 1, x),
    "unbound": lambda x: x.unbind(0),
    "as-complex": lambda x: torch.view_as_complex(x[:, :2]),
    "lazily-conjugated": lambda x: torch.view_as_complex(x[:, :2]).conj(),
    "written-through-view": lambda x: x.view(-1)[3:5].zero_(),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_result_that_is_an_argument_is_the_callers_own_tensor_or_a_view_of_it(
    kind: str, device: torch.device
) -> None:
    columns = 4 if "conj" in kind or "complex" in kind else 3  # pairs lie next to each other
    g = record(GIVEN[kind], values(device, 4, columns))
    for start in (0, 2, 4):  # offsets that the recording did not see
        x = values(device, 9, columns)[start : start + 4]
        result = check_replay(g, x)
        first = _tensors(result)[0]
        assert first.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_the_very_object_comes_back(device: torch.device) -> None:
    g = record(lambda a, b: {"b": b, "a": [a]}, values(device, 2), values(device, 2))
    a, b = values(device, 2), values(device, 2)
    result = check_replay(g, a, b)
    assert result["b"] is b
    assert result["a"][0] is a


def test_a_parameter_or_buffer_in_the_result_is_the_modules_own(device: torch.device) -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(values(device, 3), requires_grad=False)
            self.register_buffer("seen", torch.zeros(3, device=device))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            self.seen.add_(x)
            return x * self.weight, self.weight, self.weight[1:], self.seen

    module = Holds()
    g = graphed(module, admit_after=1)
    x = values(device, 3)
    g(x)
    seen = module.seen.clone()
    for _ in range(3):
        spoil(g)
        product, weight, part, buffer = g(x)
        assert g.last.outcome is Outcome.REPLAYED
        seen += x
        torch.testing.assert_close(product, x * module.weight)
        assert weight.data_ptr() == module.weight.data_ptr()
        assert part.data_ptr() == module.weight[1:].data_ptr()
        assert buffer.data_ptr() == module.seen.data_ptr()
        torch.testing.assert_close(buffer, seen)


@pytest.mark.parametrize("kind", ["weight", "seen", "entries", "closed_over"])
def test_a_tensor_that_is_returned_and_not_computed_with_is_the_object_itself(
    device: torch.device, kind: str
) -> None:
    closed_over = torch.ones(3, device=device)

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(values(device, 3))
            self.weight.mark = "carries an attribute"  # type: ignore[attr-defined]
            self.register_buffer("seen", torch.zeros(3, device=device))
            self.entries_of_it = [torch.ones(3, device=device)]

        def forward(self, x: Tensor) -> tuple[Tensor, Any]:
            held: dict[str, Any] = {
                "weight": self.weight,
                "seen": self.seen,
                "entries": self.entries_of_it[0],
                "closed_over": closed_over,
            }
            return x * 2, held[kind]

    module = Holds()
    g = graphed(module, admit_after=1)
    x = values(device, 3)
    with torch.no_grad():
        g(x)
        wanted = module(x)[1]
        for _ in range(2):
            product, held = g(x)
            assert g.last.outcome is Outcome.REPLAYED
            torch.testing.assert_close(product, x * 2)
            assert held is wanted
            held.add_(1)  # as a caller may who wants to write to the weight
        if kind == "weight":  # where it was exchanged, the new one comes
            module.weight = nn.Parameter(values(device, 3))
            assert g(x)[1] is module.weight


def test_a_slice_of_a_huge_intermediate_does_not_keep_it_alive(device: torch.device) -> None:
    g = record(lambda x: x.expand(1000, 1000).contiguous()[:, :2], values(device))
    result = check_small(g, values(device))
    assert result.untyped_storage().nbytes() <= 2 * result.nbytes


def check_small(g: Any, x: Tensor) -> Tensor:
    spoil(g)
    result: Tensor = g(x)
    assert g.last.outcome is Outcome.REPLAYED
    assert torch.equal(result, x.expand(1000, 2))
    return result


# Loops.


def test_feeding_a_result_back_is_right_for_hundreds_of_steps(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        return x * 0.99 + x.roll(1) * 0.01

    g = graphed(step, admit_after=2)
    mine = theirs = values(device, 16)
    for _ in range(300):
        mine, theirs = g(mine), step(theirs)
    torch.testing.assert_close(mine, theirs)
    assert g.report().to_dict()["replays"] == 298


def test_feeding_a_view_of_a_result_back_is_right(device: torch.device) -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        return y, y[1:]

    g = graphed(lambda x: step(x), admit_after=1)
    mine = theirs = values(device, 40)
    for _ in range(30):
        mine, theirs = (
            g(torch.cat([g(mine)[1], mine[:1]]))[0],
            step(torch.cat([step(theirs)[1], theirs[:1]]))[0],
        )
    torch.testing.assert_close(mine, theirs)


def test_state_that_is_written_in_place_moves_on_for_hundreds_of_steps(
    device: torch.device,
) -> None:
    def step(state: Tensor, x: Tensor) -> Tensor:
        state.mul_(0.5).add_(x)
        return state.sum()

    g = graphed(step, admit_after=2)
    mine = torch.zeros(4, device=device)
    theirs = mine.clone()
    for i in range(200):
        x = torch.full((4,), float(i), device=device)
        torch.testing.assert_close(g(mine, x), step(theirs, x))
    torch.testing.assert_close(mine, theirs)
    assert g.last.outcome is Outcome.REPLAYED


def test_growing_state_is_right_on_every_pass(device: torch.device) -> None:
    def step(token: Tensor, past: Tensor) -> Tensor:
        return torch.cat([past, (past.mean(1, keepdim=True) + token)], dim=1)

    g = graphed(step, admit_after=2)
    for _ in range(3):
        mine = theirs = values(device, 1, 1, 2)
        for _ in range(100):
            token = values(device, 1, 1, 2)
            mine, theirs = g(token, mine), step(token, theirs)
        torch.testing.assert_close(mine, theirs)
    assert g.report().to_dict()["replays"] == 100


def test_a_result_outlives_later_calls_its_detached_views_and_the_runner(
    device: torch.device,
) -> None:
    g = record(lambda x: x * 2, values(device, 3))
    x = values(device, 3)
    first = g(x)
    view = first.detach()[1:]
    for _ in range(5):
        g(values(device, 3))
    g.close()
    assert torch.equal(first, x * 2)
    assert torch.equal(view, (x * 2)[1:])


# What cannot be handed out is refused.


class Result:
    def __init__(self, value: Tensor) -> None:
        self.value = value


def test_an_object_that_each_run_makes_anew_is_refused(device: torch.device) -> None:
    g = graphed(lambda x: Result(x + 1), admit_after=1)
    for _ in range(4):
        x = values(device, 3)
        assert torch.equal(g(x).value, x + 1)
        assert g.last.outcome is Outcome.EAGER
    assert g.last.reason is Reason.UNSUPPORTED_OUTPUT
    assert "Result" in g.last.detail


def test_an_object_that_lasts_is_handed_back(device: torch.device) -> None:
    config = Result(values(device, 1))
    g = record(lambda x: (x + 1, config), values(device, 3))
    spoil(g)
    assert g(values(device, 3))[1] is config
    assert g.last.outcome is Outcome.REPLAYED


@pytest.mark.filterwarnings("ignore:.*reads the clock:ostinato.graphs.OstinatoWarning")
def test_a_python_value_that_differs_from_run_to_run_is_refused(device: torch.device) -> None:
    g = graphed(lambda x: (x + 1, time.perf_counter()), admit_after=1)
    with pytest.warns(OstinatoWarning, match="1 was .* in one run and"):
        seen = {g(values(device, 3))[1] for _ in range(4)}
    assert len(seen) == 4
    assert g.last.reason is Reason.PYTHON_SIDE_EFFECT


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_a_sparse_result_runs_eagerly(device: torch.device) -> None:
    g = graphed(lambda i, v: torch.sparse_coo_tensor(i, v, (4,), check_invariants=False) * 2)
    for _ in range(3):
        v = values(device, 2)
        i = torch.tensor([[0, 2]], device=device)
        assert torch.equal(g(i, v).to_dense()[::2], v * 2)
    assert g.last.outcome is Outcome.EAGER


def test_a_result_that_requires_a_gradient_runs_eagerly_and_has_one(device: torch.device) -> None:
    layer = nn.Linear(3, 1).to(device)
    g = graphed(layer, admit_after=1)
    for _ in range(2):
        g(values(device, 2, 3)).sum().backward()
    assert layer.weight.grad is not None
    assert g.last.reason is Reason.REQUIRES_GRAD
    with torch.no_grad():
        g(values(device, 2, 3))
        check_replay(g, values(device, 2, 3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: nn.Parameter(x, requires_grad=False),
        lambda x: torch.complex(x, x).conj(),
        lambda x: torch.complex(x, x).conj().imag,
    ],
)
@torch.inference_mode()
def test_a_result_has_the_type_and_the_reading_of_an_eager_one(
    fn: Callable[[Tensor], Tensor],
) -> None:
    runner = graphed(fn, admit_after=1, backend="tape")
    x = torch.randn(4)
    wanted = fn(x)
    for _ in range(4):
        mine = runner(x)
        assert type(mine) is type(wanted)
        assert (mine.is_conj(), mine.is_neg()) == (wanted.is_conj(), wanted.is_neg())
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("fn", [nn.Dropout().eval(), nn.AlphaDropout().eval(), nn.Identity()])
def test_an_input_that_comes_back_through_a_call_is_the_input_itself(
    fn: nn.Module, inference: bool
) -> None:
    runner = graphed(fn, admit_after=1, backend="tape")
    with torch.inference_mode(inference), torch.no_grad():
        for _ in range(4):
            x = torch.ones(4)
            assert runner(x) is x
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
