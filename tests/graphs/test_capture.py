"""How a recording is made: what is watched meanwhile, and what is compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, Runner, capture, graphed
from ostinato.graphs.observe import observe


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def unless_profiled(x: Tensor) -> Tensor:
    if sys.getprofile() is not None:
        raise RuntimeError("a profiling hook is on")
    return x * 2


@pytest.mark.skipif(sys.getprofile() is not None, reason="a profiler is running")
def test_code_that_names_nothing_of_the_kind_is_not_profiled(device: torch.device) -> None:
    g: Runner[[Tensor], Tensor] = graphed(unless_profiled, admit_after=1)
    g(torch.ones(2, device=device))
    assert g.last is not None
    assert g.last.outcome is Outcome.RECORDED, g.last


def turns(x: Tensor) -> Tensor:
    x.t_()
    return x * 2


def seeds(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return x + torch.rand_like(x)


@pytest.mark.parametrize(("fn", "times"), [(turns, 1), (seeds, 2)])
def test_only_a_run_that_seeds_is_observed_again(
    fn: Any, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return observe(*args, **kwargs)

    monkeypatch.setattr(capture, "observe", counted)
    g: Runner[[Tensor], Tensor] = graphed(fn, admit_after=1)
    with pytest.warns(match="python-side-effect"):
        g(torch.ones(2, 3))
    assert len(runs) == times


CAPTURING = torch.cuda.is_current_stream_capturing


def other_layout_when_captured(x: Tensor) -> Tensor:
    y = x * 2
    is_watched = torch.cuda.is_current_stream_capturing is not CAPTURING
    if is_watched or (x.is_cuda and CAPTURING()):
        return y.t().contiguous().t()
    return y


def test_a_recorded_run_with_other_strides_than_eager_is_refused(device: torch.device) -> None:
    g: Runner[[Tensor], Tensor] = graphed(other_layout_when_captured, admit_after=1)
    for _ in range(3):
        assert g(torch.ones(2, 3, device=device)).stride() == (3, 1)
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.MISMATCH)
    assert "strides [1, 2] recorded, [3, 1] eager" in g.last.detail
