"""Claims: each is judged on what was measured, and none is left out."""

from __future__ import annotations

from typing import Any

import pytest

from bench.measured import generations, result, row, spread, traffic, typical_rows
from ostinato.bench import Claim, Contender, GraphsResult, Verdict, claims_of
from ostinato.bench.results import GenerationRow, Reuse


def claim(measured: GraphsResult, words: str) -> Claim:
    found = [each for each in claims_of(measured) if words in each.about]
    assert len(found) == 1, [each.about for each in claims_of(measured)]
    return found[0]


def verdict(words: str, **changed: Any) -> Verdict:
    return claim(result(**changed), words).verdict


def test_every_claim_holds_on_the_typical_numbers() -> None:
    assert {each.verdict for each in claims_of(result())} == {Verdict.MET}


@pytest.mark.parametrize(
    ("words", "of_owned"),
    [
        ("host time of a call to the hand-written graph's", {"host": spread(30 * 1.51)}),
        ("host time of a call to reduce-overhead's", {"host": spread(45.6)}),
        ("wall time to the hand-written graph's, calls in a row", {"wall": spread(1137 * 1.031)}),
        ("wall time to the hand-written graph's, one call", {"alone": spread(1137 * 1.031)}),
        ("share of the hand-written graph's, calls in a row", {"wall": spread(1137 / 0.949)}),
        ("share of the hand-written graph's, one call", {"alone": spread(1137 / 0.949)}),
        ("results are those of eager", {"agrees": False}),
    ],
)
def test_a_claim_is_not_met_just_past_its_target(words: str, of_owned: dict[str, Any]) -> None:
    assert verdict(words, rows=typical_rows(**of_owned)) is Verdict.NOT_MET


@pytest.mark.parametrize("time", ["wall", "alone"])
def test_compiled_inside_must_be_no_slower_than_reduce_overhead(time: str) -> None:
    slower = row(Contender.INSIDE, **{time: spread(980.0)})
    rows = (*typical_rows()[:-1], slower)
    how = "calls in a row" if time == "wall" else "one call at a time"
    assert verdict(f"compiled inside, to reduce-overhead's, {how}", rows=rows) is Verdict.NOT_MET


def test_calls_that_ran_eagerly_never_meet_a_claim() -> None:
    rows = typical_rows(fallback="runs eagerly: host-sync")
    found = [
        each
        for each in claims_of(result(rows=rows, generations=(), traffic=None))
        if "compiled inside" not in each.about
    ]
    assert {each.verdict for each in found} == {Verdict.NOT_MET}
    assert all("runs eagerly: host-sync" in each.measured for each in found)


def test_a_contender_that_failed_leaves_its_claims_unmeasured_with_its_error() -> None:
    failed = row(Contender.RAW, host=None, alone=None, wall=None, error="needs a CUDA device")
    rows = tuple(failed if each.contender is Contender.RAW else each for each in typical_rows())
    found = claim(result(rows=rows), "host time of a call to the hand-written graph's")
    assert found.verdict is Verdict.NOT_MEASURED
    assert found.measured == "hand-written graph: needs a CUDA device"


def test_a_contender_that_was_not_asked_for_leaves_its_claims_unmeasured() -> None:
    found = claim(result(rows=typical_rows()[:1]), "to reduce-overhead's, calls in a row")
    assert found.verdict is Verdict.NOT_MEASURED
    assert "it was not asked for" in found.measured


@pytest.mark.parametrize(("fast", "expected"), [(800.0, Verdict.MET), (799.0, Verdict.NOT_MET)])
def test_accelerate_must_be_eight_times_as_fast_as_generate(fast: float, expected: Verdict) -> None:
    assert verdict("accelerate to model.generate", generations=generations(fast)) is expected


@pytest.mark.parametrize(("raw", "expected"), [(927.0, Verdict.MET), (929.0, Verdict.NOT_MET)])
def test_accelerate_must_be_within_three_percent_of_the_hand_written_decode_graph(
    raw: float, expected: Verdict
) -> None:
    rows = generations(900.0, raw=raw)
    assert verdict("accelerate to the hand-written graph's", generations=rows) is expected


def test_a_hand_written_decode_graph_that_failed_leaves_the_claim_unmeasured() -> None:
    *rest, _ = generations()
    by_hand = GenerationRow("smollm2-decode", "bf16", "hand-written graph", error="no room")
    for rows, why in (((*rest, by_hand), "no room"), (rest, "hand-written graph was not run")):
        found = claim(result(generations=tuple(rows)), "accelerate to the hand-written")
        assert (found.verdict, found.measured) == (Verdict.NOT_MEASURED, why)


def test_the_claim_about_generation_says_how_many_answers_were_the_same() -> None:
    assert "4 of 5 answers the same" in claim(result(), "accelerate to model.generate").measured


@pytest.mark.parametrize(("replays", "expected"), [(186, Verdict.MET), (185, Verdict.NOT_MET)])
def test_at_least_93_percent_of_prefill_calls_must_be_replays(
    replays: int, expected: Verdict
) -> None:
    row_ = traffic(prefill=Reuse(200, replays, 2000, replays * 10))
    assert verdict("prefill calls replayed", traffic=row_) is expected


def test_calls_weigh_by_their_nodes_in_the_claim_that_says_so() -> None:
    row_ = traffic(prefill=Reuse(200, 190, 1e6, 1e5))
    assert verdict("weighted by nodes", traffic=row_) is Verdict.NOT_MET
    assert verdict("all calls replayed after", traffic=row_) is Verdict.MET


@pytest.mark.parametrize(("seconds", "expected"), [(8.2, Verdict.MET), (8.3, Verdict.NOT_MET)])
def test_buckets_must_save_67_percent_of_the_recording_time(
    seconds: float, expected: Verdict
) -> None:
    assert verdict("recording time saved", traffic=traffic(recording_s=seconds)) is expected


def test_traffic_that_failed_leaves_all_its_claims_unmeasured() -> None:
    found = claims_of(result(rows=(), generations=(), traffic=traffic(error="no room")))
    assert [each.verdict for each in found] == [Verdict.NOT_MEASURED] * 5
    assert {each.measured for each in found} == {"no room"}
