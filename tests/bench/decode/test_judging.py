"""Which targets a run meets, and what got slower."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.bench.claims import Verdict
from ostinato.bench.decode import DecodeResult, DecodeRow, claims_of, read_result, regressions
from ostinato.bench.decode.parts import Rates
from ostinato.bench.decode.rows import KernelTime
from ostinato.bench.decode.tables import as_text
from ostinato.errors import UsageError

ROW = DecodeRow(
    "ostinato",
    "llama3.2-1b",
    1,
    tpot_ms=1.6,
    ttft_ms=3.0,
    tpot_iqr_ms=0.01,
    tok_s=625.0,
    span_ms=1.58,
    floor_ms=0.55,
)


def result(*rows: DecodeRow) -> DecodeResult:
    return DecodeResult({"date": "2026-11-29"}, Rates(4.2, 750.0), {}, rows)


def changed(**values: float) -> DecodeRow:
    return DecodeRow(**{**{k: getattr(ROW, k) for k in ROW.__slots__}, **values})


def test_what_follows_from_a_row_is_written_with_it() -> None:
    values = ROW.to_dict()
    assert values["floor_share"] == pytest.approx(0.55 / 1.6)
    assert values["host_ratio"] == pytest.approx(1.6 / 1.58)
    assert "error" not in values
    assert DecodeRow("ostinato", "llama3-8b", 1, error="no memory").to_dict() == {
        "engine": "ostinato",
        "model": "llama3-8b",
        "batch": 1,
        "error": "no memory",
    }


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        # the targets of time per token and to the first one; the host; vLLM's two
        ({}, ["not met", "met", "met", "met", "met"]),
        ({"tpot_ms": 0.72, "span_ms": 0.72}, ["met", "met", "met", "met", "met"]),
        ({"span_ms": 1.5}, ["not met", "met", "not met", "met", "met"]),
        ({"tpot_ms": 2.2, "span_ms": 2.2}, ["not met", "met", "met", "not met", "met"]),
        ({"ttft_ms": 7.6}, ["not met", "not met", "met", "met", "not met"]),
    ],
)
def test_each_claim_is_judged_by_its_own_number(
    values: dict[str, float], verdicts: list[str]
) -> None:
    assert [claim.verdict for claim in claims_of(result(changed(**values)))] == verdicts


def test_a_claim_without_a_number_says_why() -> None:
    failed = DecodeRow("ostinato", "llama3-8b", 1, error="OutOfMemoryError")
    for claim in claims_of(result(failed)):
        assert claim.verdict is Verdict.NOT_MEASURED
        assert claim.measured == "OutOfMemoryError"


def test_quantised_weights_have_a_target_of_their_own_and_no_other_engine_beside() -> None:
    row = DecodeRow("ostinato, int8", "llama3-8b", 1, tpot_ms=2.39, span_ms=2.0, ttft_ms=20.0)
    (claim,) = claims_of(result(row))
    assert claim.verdict is Verdict.MET
    assert claim.about == "llama3-8b, batch 1, int8: ms per token"


def test_kernels_are_shown_below_their_table() -> None:
    row = replace(ROW, kernels=(KernelTime("few_qkv", 32.0, 14.2),))
    assert row.to_dict()["kernels"] == ({"name": "few_qkv", "per_step": 32.0, "us": 14.2},)
    shown = as_text(result(row))
    assert "batch 1: kernels of a step, 14.2 us" in shown
    assert "14.2    32.0 x few_qkv" in shown


def test_the_table_states_the_floor_and_how_much_of_it_is_reached() -> None:
    head, line = as_text(result(ROW)).splitlines()[3:5]
    named = "batch ms/token tokens/s first, ms device, ms host floor, ms reached"
    assert head.split() == named.split()
    assert line.split() == (
        ["ostinato", "1", "1.600", "625", "3.00", "1.580", "1.013", "0.550", "34.4%"]
    )


def test_other_engines_and_toys_are_not_judged() -> None:
    other = DecodeRow("transformers", "llama3-8b", 1, tpot_ms=40.0)
    assert claims_of(result(other)) == ()
    toy = DecodeResult({"options": {"is_tiny": True}}, Rates(), {}, (ROW,))
    assert claims_of(toy) == ()
    assert "claims" not in as_text(toy)


def test_what_is_slower_beyond_noise_is_named() -> None:
    before = result(ROW)
    assert regressions(result(changed(tpot_ms=1.66)), before) == []
    assert regressions(result(changed(tpot_ms=1.7, ttft_ms=2.0)), before) == [
        "llama3.2-1b, batch 1: tpot_ms 1.7, was 1.6"
    ]
    assert regressions(result(changed(tpot_ms=1.7, tpot_iqr_ms=0.1)), before) == []


def test_first_tokens_have_a_noise_of_their_own() -> None:
    before = result(changed(ttft_iqr_ms=0.2))
    assert regressions(result(changed(ttft_ms=3.4)), before) == []
    assert regressions(result(changed(ttft_ms=3.6)), before) == [
        "llama3.2-1b, batch 1: ttft_ms 3.6, was 3"
    ]


def test_what_no_longer_runs_is_no_better_than_what_is_slower() -> None:
    failed = DecodeRow("ostinato", "llama3.2-1b", 1, error="OutOfMemoryError")
    assert regressions(result(failed), result(ROW)) == [
        "llama3.2-1b, batch 1: was measured, now OutOfMemoryError"
    ]
    assert regressions(result(failed), result(failed)) == []
    assert regressions(result(ROW), result(failed)) == []


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "decode.json"
    file.write_text(json.dumps(result(ROW).to_dict()))
    assert read_result(file).rows == (ROW,)


@pytest.mark.parametrize("text", ["", "[]", '{"rows": 3}', '{"rows": [{}], "models": {}}'])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "decode.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_result(file)
    assert caught.value.code == "OST4024"
