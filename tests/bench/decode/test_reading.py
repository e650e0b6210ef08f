"""At which bandwidth attention reads, by difference and by kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.bench.claims import Verdict
from ostinato.bench.decode.reading import ContextResult, ContextRow, as_text, claims_of

SHORT = ContextRow(
    "llama3-8b",
    32,
    128,
    steps=256,
    ms=5.0,
    kv_bytes=1e9,
    weight_bytes=15_000_000_000,
    layers=32,
    rows_per_step=32.0,
)
LONG = replace(SHORT, context=16384, ms=21.0, kv_bytes=69e9)
RESULT = ContextResult({}, 4.5, SHORT, LONG)


def test_what_long_rows_take_longer_is_the_reading_of_what_they_have_more() -> None:
    assert RESULT.difference_tb_s == pytest.approx(68 / 16)
    assert RESULT.share == pytest.approx(68 / 16 / 4.5)


def test_of_two_answers_the_less_counts() -> None:
    quick, slow = (replace(LONG, attention_us=each, attention_runs=64) for each in (480.0, 600.0))
    assert quick.kernel_tb_s == pytest.approx(69e9 / (480 * 32) / 1e6)
    assert replace(RESULT, long=quick).share == pytest.approx(68 / 16 / 4.5)
    assert replace(RESULT, long=slow).share == pytest.approx(69e9 / (600 * 32) / 1e6 / 4.5)
    assert replace(RESULT, short=None, long=slow).share == pytest.approx(
        69e9 / (600 * 32) / 1e6 / 4.5
    )


def test_the_floor_is_of_weights_and_keys_and_values() -> None:
    assert LONG.floor_ms(4.5) == pytest.approx(84 / 4.5)
    assert LONG.floor_ms(0.0) is None


@pytest.mark.parametrize(("ms", "verdict"), [(23.8, Verdict.MET), (24.0, Verdict.NOT_MET)])
def test_four_fifths_of_the_bandwidth_are_claimed(ms: float, verdict: Verdict) -> None:
    # 68 GB in 18.89 ms are 3.6 TB/s.
    (claim,) = claims_of(replace(RESULT, long=replace(LONG, ms=ms)))
    assert claim.verdict is verdict


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (replace(RESULT, long=replace(LONG, preemptions=2)), "2 rows were thrown out"),
        (replace(RESULT, long=replace(LONG, ms=None, error="no memory")), "no memory"),
        (replace(RESULT, long=replace(LONG, ms=4.9)), "not measured"),
        (replace(RESULT, read_tb_s=0.0), "not measured"),
    ],
)
def test_what_bears_nothing_out_says_why(result: ContextResult, why: str) -> None:
    (claim,) = claims_of(result)
    assert (claim.verdict, claim.measured) == (Verdict.NOT_MEASURED, why)


def test_toys_are_not_judged() -> None:
    assert claims_of(replace(RESULT, head={"options": {"is_tiny": True}})) == ()
    assert claims_of(replace(RESULT, long=None)) == ()


def test_the_text_tells_what_did_not_count() -> None:
    row = replace(
        LONG,
        before=64,
        behind=9,
        prompts_s=21.5,
        attention_us=500.0,
        launch_ms=20.9,
        launch_iqr_ms=0.04,
    )
    shown = as_text(replace(RESULT, long=row))
    assert "21.000 ms a token over 256 steps of all rows (32.00 by the engine's count)" in shown
    assert "launch to launch 20.900, apart 0.040" in shown
    assert "69.000 GB of keys and values and 15.000 of weights; floor 18.667 ms" in shown
    assert "64 steps while prompts came in (21.5 s), 9 behind; thrown out: 0" in shown
    assert "500.0 us a layer, 4.312 TB/s" in shown
    assert "MET: llama3-8b, batch 32, 16384 tokens of context" in shown


def test_what_is_written_leaves_out_what_is_not_known() -> None:
    written = replace(RESULT, long=None).to_dict()
    assert [row["context"] for row in written["rows"]] == [128]
    assert "error" not in written["rows"][0]
    assert written["rows"][0]["floor_ms"] == pytest.approx(16 / 4.5)
    assert (written["difference_tb_s"], written["share"], written["claims"]) == (None, None, [])
