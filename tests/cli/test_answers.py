"""The result of a run: its arithmetic, its JSON and its words."""

import json
from typing import Any

import pytest

from ostinato.cli.answers import ON_A_CPU, Outcome, Side, summary_lines

REPORT = {"recordings": 2, "graphs": [{"build_seconds": 0.25}, {"build_seconds": 0.5}]}


def outcome(**changes: Any) -> Outcome:
    parts: dict[str, Any] = {
        "text": "hé",
        "eager": Side((5, 6, 7, 8), (2.0, 4.0, 9.0)),
        "replayed": Side((5, 6, 7, 8), (0.5,)),
        "report": REPORT,
        "how": "replayed: 3 of 3 steps replayed",
    }
    return Outcome(**parts | changes)


def test_tokens_per_second_are_those_of_the_median_answer() -> None:
    assert outcome().eager.tokens_per_s == 4 / 4.0
    assert outcome().replayed.tokens_per_s == 4 / 0.5


def test_speedup_is_the_replayed_rate_over_the_eager_one() -> None:
    assert outcome().speedup == 8.0


@pytest.mark.parametrize(
    ("ids", "identical"), [((5, 6, 7, 8), True), ((5, 6, 7), False), ((5, 6, 7, 9), False)]
)
def test_tokens_are_identical_when_every_one_is(ids: tuple[int, ...], identical: bool) -> None:
    assert outcome(replayed=Side(ids, (1.0,))).tokens_identical is identical


def test_the_json_object_has_exactly_its_six_keys_in_order() -> None:
    shown = json.loads(json.dumps(outcome().to_dict(), allow_nan=False))
    assert shown == {
        "text": "hé",
        "tokens_identical": True,
        "eager_tokens_per_s": 1.0,
        "replay_tokens_per_s": 8.0,
        "speedup": 8.0,
        "report": REPORT,
    }


def test_the_words_name_both_rates_and_what_they_mean() -> None:
    lines = summary_lines(outcome(), on_cpu=False)
    assert lines[1].split() == ["eager", "1.0", "4", "4.000", "3"]
    assert lines[2].split() == ["replayed", "8.0", "4", "0.500", "1"]
    assert "speed-up 8.00x, all 4 tokens identical" in lines
    assert "the replayed side was replayed: 3 of 3 steps replayed" in lines
    assert "recording took 0.75 s, once" in lines
    assert ON_A_CPU not in lines


def test_a_cpu_is_said_to_show_no_speed() -> None:
    assert summary_lines(outcome(), on_cpu=True)[-1] == ON_A_CPU


def test_a_difference_is_told_with_how_close_it_was() -> None:
    differs = outcome(replayed=Side((5,), (1.0,)), difference="row 0, column 9: 6 or 7")
    assert "tokens differ (row 0, column 9: 6 or 7)" in summary_lines(differs, on_cpu=True)[3]


def test_a_run_that_recorded_nothing_claims_no_recording() -> None:
    lines = summary_lines(outcome(report={"graphs": []}), on_cpu=False)
    assert not any("recording took" in line for line in lines)
