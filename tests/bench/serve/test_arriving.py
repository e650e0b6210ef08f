"""Arrivals: a trace's, or drawn so that they have its statistics."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest

from ostinato.bench.serve.arriving import draw_bursts, window
from ostinato.errors import UsageError


def test_bursts_come_as_often_as_the_code_trace_and_as_unevenly() -> None:
    moments = [one.at_s for one in draw_bursts(60_000.0)]
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    assert 1 / mean(gaps) == pytest.approx(2.57, rel=0.1)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(13.15, rel=0.15)


def test_a_drawn_burst_has_prompts_and_answers_as_long_as_the_traces() -> None:
    found = draw_bursts(20_000.0)
    contexts = sorted(one.context for one in found)
    answers = sorted(one.generated for one in found)
    for sizes, p50, p90, most in ((contexts, 1469, 5194, 7437), (answers, 13, 55, 1899)):
        assert sizes[len(sizes) // 2] == pytest.approx(p50, rel=0.1)
        assert sizes[len(sizes) * 9 // 10] == pytest.approx(p90, rel=0.1)
        assert sizes[-1] <= most


@pytest.mark.parametrize("named", ["chat", "code"])
def test_a_drawn_window_is_the_same_each_time_and_fits_the_model(named: str) -> None:
    found = window(named, 100.0, 512)
    assert found == window(named, 100.0, 512)
    assert all(one.at_s < 100.0 and one.context + one.generated <= 512 for one in found)


def test_a_window_has_five_minutes_at_most() -> None:
    assert 299.0 < window("chat", 1000.0, 512)[-1].at_s < 300.0


def test_the_real_bursts_are_read(shared: Path) -> None:
    file = shared / "data" / "traces" / "azure_llm_2023_code.csv"
    found = window(str(file), 300.0, 8192)
    assert len(found) == 781
    gaps = [later.at_s - sooner.at_s for sooner, later in pairwise(found)]
    assert pstdev(gaps) / mean(gaps) > 5


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match=r"OST4022: there is no file /no/file\.csv"):
        window("/no/file.csv", 1.0, 512)
