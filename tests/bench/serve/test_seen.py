"""What requests come to in numbers: refusals, failures and answers apart, nothing left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ostinato.bench.claims import Verdict
from ostinato.bench.serve.beside import Alone, compare
from ostinato.bench.serve.judging import claims_of
from ostinato.bench.serve.objective import Objective, percentiles
from ostinato.bench.serve.rows import ServeResult, ServeRow, regressions
from ostinato.bench.serve.seen import CANCELLED, SHED, Seen, Summary, summarise

OBJECTIVE = Objective(ttft_s=1.0, tpot_s=0.1)


def answered(
    sent_s: float, first_s: float, end_s: float, tokens: int, *gaps_s: float, stream: int = 0
) -> Seen:
    return Seen(sent_s, 0.0, first_s, end_s, list(gaps_s), tokens, 200, stream=stream)


def test_rates_are_of_whole_answers_over_the_whole_time() -> None:
    seen = [answered(0.0, 0.5, 1.0, 6), answered(1.0, 1.5, 4.0, 4)]
    one = summarise(seen, OBJECTIVE, is_closed=False)
    assert (one.seconds, one.tok_s, one.requests_s) == (4.0, 2.5, 0.5)
    assert one.steady_tok_s is None
    assert one.ttft_ms["p50"] == 500.0
    assert one.tpot_ms == {"p50": 100.0, "p90": 833.3333, "p99": 833.3333, "max": 833.3333}


def test_what_is_not_counted_changes_nothing() -> None:
    seen = [answered(2.0, 2.5, 3.0, 6), Seen(0.0, error="timeout", is_counted=False)]
    one = summarise(seen, OBJECTIVE, is_closed=False)
    assert (one.requests, one.seconds, one.errors) == (1, 1.0, {})


def test_refusals_cancellations_and_failures_are_apart() -> None:
    seen = [
        answered(0.0, 0.1, 0.2, 2),
        Seen(0.0, end_s=0.1, error=SHED, retry_after_s=2.0),
        Seen(0.0, end_s=0.1, error=SHED),
        Seen(0.0, end_s=0.1, error=CANCELLED),
        Seen(0.0, end_s=0.1, error="timeout"),
        Seen(0.0, end_s=0.1, error="timeout"),
        Seen(0.0, end_s=0.1, error="cut short"),
    ]
    one = summarise(seen, OBJECTIVE, is_closed=False)
    assert (one.requests, one.whole, one.shed, one.cancelled) == (7, 1, 2, 1)
    assert one.shed_without_retry == 1
    assert dict(one.errors) == {"timeout": 2, "cut short": 1}
    assert one.kept == pytest.approx(1 / 6)  # a failure is no good answer, a cancellation no answer
    assert one.kept_of_accepted == pytest.approx(1 / 4)


def test_goodput_is_of_answers_that_kept_both_objectives() -> None:
    seen = [
        answered(0.0, 0.5, 1.0, 10),
        answered(0.0, 1.5, 2.0, 20),  # the first token too late
        answered(0.0, 0.5, 4.0, 3),  # tokens too slow
        answered(0.0, 0.5, 0.5, 1),  # one token has no pace
    ]
    one = summarise(seen, OBJECTIVE, is_closed=False)
    assert one.goodput_tok_s == pytest.approx(11 / 4.0)
    assert one.kept == 0.5


def test_the_steady_rate_ends_when_the_first_stream_has_nothing_more_to_ask() -> None:
    seen = [
        answered(0.0, 0.0, 1.0, 10, stream=0),
        answered(1.0, 1.0, 2.0, 10, stream=0),
        answered(0.0, 0.0, 4.0, 40, stream=1),
    ]
    one = summarise(seen, OBJECTIVE, is_closed=True)
    assert one.tok_s == 15.0
    assert one.steady_tok_s == pytest.approx((10 + 10 + 20) / 2.0)


def test_gaps_are_between_all_frames() -> None:
    seen = [answered(0.0, 0.1, 0.4, 8, 0.1, 0.2), answered(0.0, 0.1, 0.2, 2, 0.01)]
    one = summarise(seen, OBJECTIVE, is_closed=False)
    assert one.gap_ms == {"p50": 100.0, "p90": 200.0, "p99": 200.0, "max": 200.0}
    assert one.tokens_per_frame == 10 / 5


def test_nothing_seen_is_no_division_by_zero() -> None:
    one = summarise([], OBJECTIVE, is_closed=True)
    assert (one.tok_s, one.kept, one.steady_tok_s, one.ttft_ms) == (0.0, 0.0, None, {})


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentiles(values) == {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert percentiles([3.0]) == {"p50": 3.0, "p90": 3.0, "p99": 3.0, "max": 3.0}


def summary(**changed: Any) -> Summary:
    values: dict[str, Any] = {
        "requests": 4, "whole": 4, "shed": 0, "shed_without_retry": 0, "cancelled": 0,
        "errors": {}, "seconds": 1.0, "tok_s": 61_000.0, "goodput_tok_s": 0.0, "requests_s": 4.0,
        "kept": 1.0, "kept_of_accepted": 1.0, "tokens_per_frame": 8.0, "ttft_ms": {"p50": 80.0},
        "tpot_ms": {"p50": 4.0}, "gap_ms": {"p99": 40.0},
    }  # fmt: skip
    return Summary(**(values | changed))


def result(name: str = "NVIDIA H200", **changed: Any) -> ServeResult:
    head = {"machine": {"accelerator": {"name": name}}}
    row = ServeRow("llama3.2-1b", "256 streams", 128, 128, summary=summary(**changed))
    return ServeResult(head, rows=(row,))


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, [True, True, True]),
        ({"tok_s": 59_999.0}, [False, True, True]),
        ({"ttft_ms": {"p50": 101.0}}, [True, False, True]),
        ({"gap_ms": {"p99": 51.0}}, [True, True, False]),
    ],
)
def test_the_targets_are_judged_by_the_numbers(
    changed: dict[str, Any], verdicts: list[bool]
) -> None:
    claims = claims_of(result(**changed))
    assert [claim.verdict is Verdict.MET for claim in claims] == verdicts


@pytest.mark.parametrize(
    ("alone", "verdicts"),
    [
        (Alone(70_000.0, 3.9), [True, True]),
        (Alone(80_000.0, 3.9), [False, True]),
        (Alone(70_000.0, 3.7), [True, False]),
        (Alone(70_000.0, None), [True]),
    ],
)
def test_a_server_is_judged_by_what_its_engine_gives_alone(
    alone: Alone, verdicts: list[bool]
) -> None:
    one = result()
    (row,) = one.rows
    other = replace(one, rows=(replace(row, beside=compare(row.summary, alone)),))
    claims = [claim for claim in claims_of(other) if "engine's own" in claim.about]
    assert [claim.verdict is Verdict.MET for claim in claims] == verdicts


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({"shed": 3}, [True, True]),
        ({"kept_of_accepted": 0.94}, [False, True]),
        ({"shed": 3, "shed_without_retry": 1}, [True, False]),
        ({"errors": {"status 503: draining": 1}}, [True, False]),
    ],
)
def test_of_a_trace_who_is_let_in_is_served_well_and_who_is_not_is_told(
    changed: dict[str, Any], verdicts: list[bool]
) -> None:
    one = result(**changed)
    rows = tuple(replace(row, load="trace x4", prompt=0, new=0) for row in one.rows)
    claims = claims_of(replace(one, rows=rows))
    assert [claim.verdict is Verdict.MET for claim in claims] == verdicts


def test_another_machine_bears_nothing_out() -> None:
    assert claims_of(result("NVIDIA A100")) == ()


BEFORE = {
    ("llama3.2-1b", "256 streams", 128, 128): {
        "tok_s": 61_000.0, "tok_s_all": [60_000.0, 61_000.0], "ttft_ms": {"p50": 80.0},
        "tpot_ms": {"p50": 4.0}, "errors": {},
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"tok_s": 57_500.0}, []),  # within the noise and the spread of the repeats
        ({"tok_s": 56_000.0}, ["tokens/s"]),
        ({"ttft_ms": {"p50": 90.0}}, ["ttft_ms"]),
        ({"tpot_ms": {"p50": 4.3}}, []),  # less than clocks on a host agree
        ({"tpot_ms": {"p50": 5.0}}, ["tpot_ms"]),
        ({"errors": {"timeout": 1}}, ["timeout"]),
    ],
)
def test_what_got_worse_beyond_noise_is_told(changed: dict[str, Any], said: list[str]) -> None:
    lines = regressions(result(**changed), BEFORE)
    assert len(lines) == len(said)
    assert all(word in line for word, line in zip(said, lines, strict=True))
