"""Logs and warnings: said once per cause, at the user's line, in fields that programs can read."""

import logging
import warnings

import pytest
import torch

from ostinato.graphs import OstinatoWarning, Reason, graphed
from ostinato.graphs.chronicle import QUIET, Chronicle


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.fallback_reason for r in caplog.records if hasattr(r, "fallback_reason")]


def test_a_reason_is_logged_once_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    chronicle = Chronicle("step")
    for _ in range(3):
        chronicle.ran_eagerly(Reason.HOST_SYNC, "model.py:3", "step#1")
    chronicle.ran_eagerly(Reason.HOST_SYNC, "model.py:9", None)
    assert said(caplog) == ["host-sync", "host-sync"]
    assert [r.graph_id for r in caplog.records] == ["step#1", None]
    assert caplog.records[0].getMessage() == "step runs eagerly: host-sync (model.py:3)"
    assert caplog.records[0].levelno == logging.WARNING
    assert chronicle.reasons[Reason.HOST_SYNC] == chronicle.eager == 4


@pytest.mark.parametrize("reason", sorted(QUIET, key=str))
def test_what_is_part_of_normal_life_is_counted_not_logged(
    reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    chronicle = Chronicle("step")
    chronicle.ran_eagerly(reason, "a detail")
    assert said(caplog) == []
    assert chronicle.reasons[reason] == 1


def test_details_without_end_neither_flood_the_log_nor_silence_another_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chronicle = Chronicle("step")
    for n in range(3000):
        chronicle.ran_eagerly(Reason.OUTSIDE_BUCKETS, f"x has {n}")
    assert len(said(caplog)) == 20
    assert caplog.records[-2].getMessage() == "step runs eagerly: outside-buckets (x has 18)"
    assert caplog.records[-1].getMessage() == (
        "step runs eagerly: outside-buckets (x has 19); no more of outside-buckets is logged"
    )
    assert sum(map(len, chronicle._said.values())) == 20
    chronicle.ran_eagerly(Reason.HOST_SYNC, "model.py:3")
    assert said(caplog)[-1] == "host-sync"


def test_warnings_without_end_end_too() -> None:
    chronicle = Chronicle("step")
    with warnings.catch_warnings(record=True, action="always") as caught:
        for n in range(3000):
            chronicle.warn(Reason.ATTRIBUTE_CHANGED, f"table[{n}] changed", about=f"table[{n}]")
        chronicle.warn(Reason.PYTHON_SIDE_EFFECT, "it prints")
    assert len(caught) == 21


def test_a_recording_that_goes_is_logged_with_its_name(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    module = torch.nn.Linear(1, 1, device=device)
    runner = graphed(module, admit_after=1)
    with torch.no_grad():
        runner(torch.ones(1, 1, device=device))
        module.weight.data = torch.ones(1, 1, device=device)
        runner(torch.ones(1, 1, device=device))
    assert said(caplog) == ["weights-moved"]
    assert caplog.records[0].graph_id == "Linear#1"


def test_a_warning_is_given_once_per_cause_at_the_user_s_line() -> None:
    chronicle = Chronicle("step")
    with warnings.catch_warnings(record=True, action="always") as caught:
        chronicle.warn(Reason.ATTRIBUTE_CHANGED, "scale changed from 1 to 2", about="scale")
        chronicle.warn(Reason.ATTRIBUTE_CHANGED, "scale changed from 2 to 3", about="scale")
        chronicle.warn(Reason.ATTRIBUTE_CHANGED, "shift changed from 2 to 3", about="shift")
    assert [str(w.message).partition(" ")[2][:13] for w in caught] == [
        "scale changed",
        "shift changed",
    ]
    assert all(w.filename == __file__ for w in caught)
    assert all(w.category is OstinatoWarning for w in caught)


def test_warnings_turned_into_errors_leave_the_runner_in_order(device: torch.device) -> None:
    class Scaled(torch.nn.Module):
        scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    module = Scaled()
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, device=device)
    runner(x)
    runner(x)
    module.scale = 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OstinatoWarning):
            runner(x)
        assert runner(x).item() == 3.0
        assert runner(x).item() == 3.0
