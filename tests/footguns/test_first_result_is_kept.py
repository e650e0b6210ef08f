"""A result is the caller's for ever (pytorch#170604: stale; pytorch#104435: despite detach)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from footguns.traces import alike
from graphs.replaying import check_replay, record, spoil
from ostinato import Lease, Outcome, StaleLease, graphed


def double(x: Tensor) -> Tensor:
    return x * 2


def test_the_first_result_is_unchanged_by_the_second_call(device: torch.device) -> None:
    """pytorch#170604."""
    g = graphed(double, admit_after=1)
    first = g(torch.ones(4, device=device))  # recorded
    second = g(torch.full((4,), 5.0, device=device))  # replayed
    third = g(torch.full((4,), 7.0, device=device))
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    assert [first.tolist(), second.tolist(), third.tolist()] == [[2.0] * 4, [10.0] * 4, [14.0] * 4]


MANY: dict[str, Callable[[Tensor], Any]] = {
    "one": double,
    "tuple": lambda x: (x + 1, x + 2),
    "dict": lambda x: {"a": x + 1, "b": [x.sum()]},
    "transposed": lambda x: (x + 1).t(),
    "expanded": lambda x: x.sum(0, keepdim=True).expand(4, 4),
    "slice": lambda x: (x * 3)[1:, ::2],
    "same-twice": lambda x: [x * 2] * 2,
    "views-of-one": lambda x: (x * 2).unbind(0),
    "scalar": lambda x: x.sum(),
}


@pytest.mark.parametrize("kind", MANY)
def test_twenty_results_are_kept_apart(kind: str, device: torch.device) -> None:
    """pytorch#170604."""
    g = record(MANY[kind], torch.zeros(4, 4, device=device))
    inputs = [torch.full((4, 4), float(i), device=device) for i in range(20)]
    results = []
    for x in inputs:
        results.append(check_replay(g, x))
    g.close()
    for x, result in zip(inputs, results, strict=True):
        alike(result, MANY[kind](x))


def test_writing_into_a_result_changes_no_later_result(device: torch.device) -> None:
    """pytorch#170604."""
    g = record(lambda x: (x * 2, x.new_ones(3)), torch.zeros(3, device=device))
    y, ones = g(torch.ones(3, device=device))
    y.fill_(-1.0)
    ones.fill_(-1.0)
    check_replay(g, torch.ones(3, device=device))


KEPT: dict[str, Callable[[Tensor], Tensor]] = {
    "detach": lambda y: y.detach(),
    "view": lambda y: y.view(-1),
    "row": lambda y: y[1],
    "transposed": lambda y: y.t(),
    "data": lambda y: y.data,
    "alias": lambda y: y.view_as(y),
    "narrow-of-detach": lambda y: y.detach().narrow(0, 1, 2),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_is_kept_of_the_first_result_is_unchanged(kind: str, device: torch.device) -> None:
    """pytorch#104435."""
    g = record(double, torch.zeros(3, 3, device=device))
    x = torch.randn(3, 3, device=device)
    kept = KEPT[kind](g(x))
    wanted = KEPT[kind](double(x)).clone()
    for _ in range(3):
        g(torch.randn(3, 3, device=device))
        spoil(g)
    assert g.report().replays == 4
    torch.testing.assert_close(kept, wanted)


def test_a_result_detached_inside_is_as_safe_as_any(device: torch.device) -> None:
    """pytorch#104435."""

    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return y, y.detach(), y[0].detach()

    g = record(step, torch.zeros(3, 3, device=device))
    for _ in range(3):
        check_replay(g, torch.randn(3, 3, device=device))


def test_a_numpy_view_of_the_first_result_is_unchanged() -> None:
    """pytorch#104435; only CPU memory can be seen from numpy."""
    g = record(double, torch.zeros(3))
    kept = g(torch.ones(3)).detach().numpy()
    g(torch.full((3,), 9.0))
    spoil(g)
    assert kept.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("run", ["again", "invalidate", "close"])
def test_a_leased_result_raises_once_its_memory_is_another_ones(
    run: str, device: torch.device
) -> None:
    """pytorch#104435."""
    g = graphed(double, admit_after=1, outputs="leased")
    x = torch.ones(3, device=device)
    g(x)
    lease = g(x)
    assert isinstance(lease, Lease)
    assert lease.get().tolist() == [2.0, 2.0, 2.0]
    {"again": lambda: g(x), "invalidate": g.invalidate, "close": g.close}[run]()
    with pytest.raises(StaleLease, match="leased for one run"):
        lease.get()


def test_the_lease_on_the_recorded_call_never_lies(device: torch.device) -> None:
    """pytorch#104435."""
    g = graphed(double, admit_after=1, outputs="leased")
    lease: Any = g(torch.ones(3, device=device))
    g(torch.full((3,), 9.0, device=device))
    try:
        seen = lease.get().tolist()
    except StaleLease:
        return
    assert seen == [2.0, 2.0, 2.0]
