"""Code that branches on a padded size, and padding that only some values show, are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_replay
from ostinato.graphs import Buckets, Outcome, Reason, graphed


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def _refused_for(fn: Callable[..., Any], first: int, **options: Any) -> Reason | None:
    """Call at the sizes of one bucket; each answer must be that of an eager run."""
    runner = graphed(fn, admit_after=1, buckets={"x": Buckets(0, (8,), **options)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in (first, 3, 7):
            x = torch.rand(rows, 2)
            torch.testing.assert_close(runner(x), fn(x))
    x = -1 - torch.rand(5, 2)
    torch.testing.assert_close(runner(x), fn(x))
    assert runner.last is not None
    return runner.last.reason if runner.last.outcome is Outcome.EAGER else None


BRANCHES: dict[str, Callable[[Tensor], Tensor]] = {
    "other numbers": lambda x: x * 2 if x.shape[0] > 5 else x * 3,
    "other fractions": lambda x: x * 2.5 if x.shape[0] > 5 else x * 3.5,
    "other functions": lambda x: torch.sin(x) if x.shape[0] > 5 else torch.cos(x),
    "one more": lambda x: torch.sin(x) if x.shape[0] > 5 else x + 1,
    "other flags": lambda x: x.cumsum(1) if x.shape[0] > 5 else x.flip(1).cumsum(1).flip(1),
    "the size as a number": lambda x: x / x.shape[0],
    "the size as a fraction": lambda x: x * (1.0 / x.shape[0]),
    "a keyword": lambda x: torch.add(x, x, alpha=x.shape[0] / 2),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("first", [4, 8])
def test_code_that_branches_on_a_padded_size_is_refused(name: str, first: int) -> None:
    assert _refused_for(BRANCHES[name], first) is Reason.BRANCHES_ON_SIZE


def test_sizes_of_different_buckets_may_differ() -> None:
    def step(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 8 else x * 3

    runner = graphed(step, admit_after=1, buckets={"x": Buckets(0, (8, 16))})
    for rows in (4, 12):
        runner(torch.rand(rows, 2))
        assert runner.last is not None
        assert runner.last.outcome is Outcome.RECORDED
        check_replay(runner, torch.rand(rows + 1, 2))


ALIKE: dict[str, Callable[[Tensor], Tensor]] = {
    "a loop over the rows": lambda x: torch.stack([x[i] * 2 for i in range(x.shape[0])]),
    "positions": lambda x: x + torch.arange(x.shape[0])[:, None],
    "positions as fractions": lambda x: x + torch.arange(0.0, float(x.shape[0]))[:, None],
    "a view by sizes": lambda x: x.reshape(x.shape[0], 1, 2).expand(x.shape[0], 3, 2) * 2,
}


@pytest.mark.parametrize("name", ALIKE)
def test_sizes_as_sizes_and_loops_are_no_branches(name: str) -> None:
    assert _refused_for(ALIKE[name], 4) is None


LEAKS: dict[str, Callable[[Tensor], Tensor]] = {
    "largest": lambda x: x.amax(0),
    "smallest": lambda x: (-x).amin(0),
    "clamped sum": lambda x: (x - x.amax(0)).sum(1),
}


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("first", [4, 8])
def test_padding_that_only_other_values_show_is_refused(name: str, first: int) -> None:
    assert _refused_for(LEAKS[name], first) is Reason.PADDING_LEAKS


def test_padding_that_only_positive_values_show_is_refused() -> None:
    runner = graphed(lambda x: x.amin(0), admit_after=1, buckets={"x": Buckets(0, (8,))})
    for x in (-1 - torch.rand(4, 2), 1 + torch.rand(4, 2)):
        assert torch.equal(runner(x), x.amin(0))
    assert runner.last is not None
    assert runner.last.reason is Reason.PADDING_LEAKS


def test_a_fill_that_suits_all_values_is_kept() -> None:
    assert _refused_for(lambda x: x.amax(0), 4, fill=float("-inf")) is None


def test_a_function_that_fails_on_other_values_is_recorded_all_the_same() -> None:
    def positive_only(x: Tensor) -> Tensor:
        torch._assert_async((x > -3).all())
        return x * 2

    runner = graphed(positive_only, admit_after=1, buckets={"x": Buckets(0, (8,))})
    runner(torch.full((3, 2), 4.0))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED


def test_an_encoder_with_a_mask_is_no_branch() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()

    def step(x: Tensor, pad: Tensor) -> Tensor:
        return layer(x, src_key_padding_mask=pad)

    lengths = Buckets(1, (8,))
    runner = graphed(
        step, admit_after=1, buckets={"x": lengths, "pad": Buckets(1, (8,), fill=True)}
    )
    runner(torch.rand(1, 5, 4), torch.zeros(1, 5, dtype=torch.bool))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED, runner.last
