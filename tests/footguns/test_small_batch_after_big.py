"""A small batch after a big one in one bucket (sglang#24401, #10892: stale rows, bad access)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import check_replay, spoil
from ostinato import Buckets, Outcome, Reason, graphed
from ostinato.graphs import Runner

# Down, up, and down again: rows that were padding become real and the other way round.
ROWS = (16, 3, 9, 1, 15, 16, 2, 8, 5)


def floats(device: torch.device) -> Callable[[int], Tensor]:
    return lambda rows: torch.randn(rows, 4, device=device)


def sort_rows(x: Tensor) -> Tensor:
    return x.sort(0, descending=True).values


# Each depends on every row of its bucket, so stale rows would show at once.
WHOLE: dict[str, tuple[Callable[[Tensor], Any], object]] = {
    "sum-zero": (lambda x: x.sum(0), 0),
    "sum-zero-word": (lambda x: x.sum(0), "zero"),
    "max-low": (lambda x: x.amax(0), -1e30),
    "logsumexp-low": (lambda x: x.logsumexp(0), float("-inf")),
    "product-one": (lambda x: x.prod(0), 1),
    "max-repeat": (lambda x: x.amax(0), "repeat-last"),
    "sorted-low": (sort_rows, -1e30),
    "matrix": (lambda x: x.T @ x, 0),
}


def run(
    fn: Callable[..., Any], make: Callable[[int], Any], fill: Any, device: torch.device
) -> Runner[..., Any]:
    g = graphed(fn, admit_after=1, buckets={"x": Buckets(0, (16,), fill)})
    g(make(ROWS[0]))
    for rows in ROWS * 2:
        spoil(g)
        x = make(rows)
        alike(g(x), fn(x))
        assert g.last is not None
    return g


@pytest.mark.parametrize("kind", WHOLE)
def test_padding_is_what_its_policy_says_at_every_size(kind: str, device: torch.device) -> None:
    fn, fill = WHOLE[kind]
    g = run(fn, floats(device), fill, device)
    assert g.report().replays == 2 * len(ROWS), g.report().reasons


ROW_BY_ROW: dict[str, Callable[[Tensor], Any]] = {
    "linear": lambda x: torch.tanh(x * 3) + x.sum(1, keepdim=True),
    "softmax": lambda x: torch.softmax(x, 1),
    "causal": lambda x: x.cumsum(0),
    "tuple": lambda x: (x * 2, x[:, 0], x.t()),
}


@pytest.mark.parametrize("kind", ROW_BY_ROW)
@pytest.mark.parametrize("fill", [0, 5.0, "zero", "repeat-last", "keep"])
def test_rows_that_mind_their_own_are_right_under_any_policy(
    kind: str, fill: Any, device: torch.device
) -> None:
    fn = ROW_BY_ROW[kind]
    g = graphed(fn, admit_after=1, buckets={"x": Buckets(0, (16,), fill)})
    g(floats(device)(16))
    for rows in ROWS:
        check_replay(g, floats(device)(rows))


@pytest.mark.parametrize("fill", [0, "zero", "repeat-last"])
def test_an_index_used_for_a_gather_stays_inside_its_table(fill: Any, device: torch.device) -> None:
    """sglang#24401: a stale index past the end of the table is an illegal access."""
    table = nn.Embedding(32, 4).to(device)

    def step(x: Tensor) -> Tensor:
        return table(x) * 2 + table.weight[x]

    g = graphed(step, admit_after=1, buckets={"x": Buckets(0, (16,), fill)})
    g(torch.randint(32, (16,), device=device))
    for rows in ROWS:
        check_replay(g, torch.randint(32, (rows,), device=device))


def test_an_index_into_the_batch_itself_never_reaches_a_stale_row(device: torch.device) -> None:
    """sglang#10892: the index and the rows it picks from are padded together."""

    def step(x: Tensor, order: Tensor) -> Tensor:
        return x.index_select(0, order)

    buckets = Buckets(0, (16,))
    g = graphed(step, admit_after=1, buckets={"x": buckets, "order": buckets})
    for rows in (16, *ROWS):
        spoil(g)
        x = torch.randn(rows, 4, device=device)
        order = torch.randperm(rows, device=device)
        alike(g(x, order), x[order])
    assert g.report().replays == len(ROWS), g.report().reasons


@pytest.mark.parametrize("fill", [0, 32])
def test_a_scatter_from_padding_rows_is_found_and_reaches_no_row(
    fill: int, device: torch.device
) -> None:
    """A slot mapping whose padding writes to a slot of its own: it is the caller's, too."""
    cache = torch.zeros(33, 4, device=device)

    def step(x: Tensor, slots: Tensor) -> Tensor:
        cache.index_copy_(0, slots, x)
        return cache[slots] * 2

    g = graphed(
        step,
        admit_after=1,
        buckets={"x": Buckets(0, (16,), 0), "slots": Buckets(0, (16,), fill)},
    )
    twin = torch.zeros(33, 4, device=device)
    for rows in (16, *ROWS):
        spoil(g)
        x = torch.randn(rows, 4, device=device)
        slots = torch.randperm(31, device=device)[:rows] + 1
        twin.index_copy_(0, slots, x)
        alike(g(x, slots), twin[slots] * 2)
        alike(cache.clone(), twin.clone())
    assert g.last is not None
    assert g.last.reason is Reason.PADDING_LEAKS


LEAKS: dict[str, Callable[[Tensor], Any]] = {
    "mean": lambda x: x - x.mean(0),
    "norm": lambda x: x / x.softmax(0).sum(1, keepdim=True) + x.softmax(0),
    "flip": lambda x: x.flip(0),
    "last-row": lambda x: x[-1:] * 2,
    "count": lambda x: x * x.shape[0],
}
LEAKING = (Reason.PADDING_LEAKS, Reason.OUTPUT_SIZE_UNKNOWN, Reason.BRANCHES_ON_SIZE)


@pytest.mark.parametrize("kind", LEAKS)
def test_a_step_into_which_padding_leaks_is_answered_eagerly(
    kind: str, device: torch.device
) -> None:
    fn = LEAKS[kind]
    g = graphed(fn, admit_after=1, buckets={"x": Buckets(0, (16,))})
    for rows in ROWS * 2:
        x = floats(device)(rows)
        alike(g(x), fn(x))
    assert g.last is not None
    assert g.last.outcome is Outcome.EAGER
    assert g.last.reason in LEAKING, g.last


def test_a_hidden_size_equal_to_the_bucket_is_never_cut(device: torch.device) -> None:
    module = nn.Linear(16, 16).to(device)
    g = graphed(lambda x: (module(x), module.weight * 2), admit_after=1,
                buckets={"x": Buckets(0, (16,))})  # fmt: skip
    for rows in (16, *ROWS):
        x = torch.randn(rows, 16, device=device)
        y, twice = g(x)
        assert y.shape == (rows, 16)
        assert twice.shape == (16, 16)
        torch.testing.assert_close(y, module(x), rtol=1e-4, atol=1e-5)


def test_the_callers_own_tensor_is_never_padded_in_place(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    g = graphed(step, admit_after=1, buckets={"x": Buckets(0, (16,))})
    for rows in (16, *ROWS):
        pool = torch.randn(20, 4, device=device)
        wanted = pool.clone()
        result = g(pool[:rows])
        alike(result, step(wanted[:rows]))
        alike(pool, wanted)
