"""A long watch looks at some of the steps, and counts what it saw for those passed over."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato.doctor import pace
from ostinato.doctor.collect import gates
from ostinato.doctor.watching import Choices, Watch

FIRST = pace.ALL_OF_THE_FIRST
QUIET = Choices(sample=False, ranges=False)
STEPS = FIRST + 400


@pytest.fixture(autouse=True)
def _nothing_stays_passed_over() -> object:
    yield
    gates.begin()


@pytest.fixture(autouse=True)
def _one_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(pace.Pace, "one_of", 8)


class Reading(nn.Module):
    """Copies for its layout, attends, and lets the host read, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.layer(x).reshape(1, 1, 2, 4).transpose(2, 3).contiguous()
        out = nn.functional.scaled_dot_product_attention(q, q, q)
        if out.sum().item() > 1e9:
            return out[out > 0]
        return out


@pytest.mark.parametrize("is_native", [True, False])
def test_a_long_watch_counts_as_if_it_had_looked_at_all(
    monkeypatch: pytest.MonkeyPatch, is_native: bool
) -> None:
    if not is_native:
        monkeypatch.setattr(gates, "_native", None)
        for module in ("syncs", "layout_copies", "copies"):
            monkeypatch.setattr(f"ostinato.doctor.collect.{module}.CALLER", 2)
    elif not gates.IS_NATIVE:
        pytest.skip("the gates in C were not built")
    model = Reading()
    with Watch(choices=QUIET) as watch, torch.inference_mode():
        for step in range(STEPS):
            y = model(torch.ones(1, 2, 4) + step)
            y.tolist()
    evidence = watch.evidence
    assert evidence.steps_seen == STEPS
    assert len(evidence.steps) == STEPS
    (called,) = evidence.callables
    assert called.calls == STEPS
    (used,) = called.signatures
    assert FIRST < used.calls < STEPS  # those that were looked at, and no more
    waits = {wait.op: wait for wait in evidence.waits}
    assert set(waits) == {"Tensor.item", "Tensor.tolist"}
    # All but those after the last look, which hardly are so many.
    for wait in waits.values():
        assert STEPS - 16 < wait.count <= STEPS
        assert wait.steps == wait.count
        assert wait.place is not None
        assert wait.place.path == __file__
    (attended,), (copied,) = evidence.attention, evidence.layout_copies
    assert attended.count == copied.count == waits["Tensor.item"].count
    for each_us in (attended.each_us, copied.each_us):  # the latest of those that were looked at
        assert len(each_us) == 128
        assert min(each_us) > 0
    assert copied.bytes == copied.count * 32
    assert copied.feeds == "attention"
    assert copied.place is not None
    assert copied.place.path == __file__


def test_steps_that_were_passed_over_are_timed() -> None:
    with Watch(choices=QUIET) as watch:
        for _ in range(STEPS):
            with watch.step("request"):
                torch.ones(1).item()
    (wait,) = watch.evidence.waits
    assert watch.evidence.steps_seen == STEPS
    assert all(step.us > 0 for step in watch.evidence.steps)
    assert STEPS - 16 < wait.count <= STEPS
