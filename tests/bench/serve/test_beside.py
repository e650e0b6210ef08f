"""A server beside its engine alone: fractions of what was measured, and nothing made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.serve.test_seen import result, summary
from ostinato.bench.serve.alone import options_in
from ostinato.bench.serve.beside import Alone, compare
from ostinato.bench.serve.server import objectives_in, words_for
from ostinato.bench.serve.tables import as_text


def test_shares_and_times_are_of_the_engines_and_its_first_token_is_taken_off() -> None:
    server = summary(tok_s=800.0, tpot_ms={"p50": 2.1}, ttft_ms={"p50": 90.0})
    beside = compare(server, Alone(1000.0, 2.0, 75.0))
    assert beside.share == pytest.approx(0.8)
    assert beside.times == pytest.approx(1.05)
    assert beside.added_ttft_ms == pytest.approx(15.0)
    assert beside.to_dict() == {
        "tok_s": 1000.0, "tpot_ms": 2.0, "ttft_ms": 75.0, "error": "", "share": 0.8,
        "times": beside.times, "added_ttft_ms": beside.added_ttft_ms, "least_share": 0.8,
        "most_times": 1.05,
    }  # fmt: skip


@pytest.mark.parametrize("alone", [Alone(error="RuntimeError: no room"), Alone()])
def test_what_was_not_measured_has_no_share(alone: Alone) -> None:
    beside = compare(summary(), alone)
    assert (beside.share, beside.times, beside.added_ttft_ms) == (None, None, None)


def test_a_server_that_gave_nothing_has_no_share() -> None:
    beside = compare(None, Alone(1000.0, 2.0))
    assert (beside.share, beside.times) == (None, None)
    one = compare(summary(tpot_ms={}), Alone(1000.0, 2.0))  # answers of one token have no pace
    assert (one.share, one.times) == (61.0, None)


@pytest.mark.parametrize(
    ("alone", "said"),
    [
        (
            Alone(61_000.0 / 0.75, 4.0),
            "0.750 of its 81,333 tokens/s (target 0.8), 1.000 of its 4 ms",
        ),
        (Alone(61_000.0, 4.0, 12.0), "+68 ms to its 12 to a first token"),
        (Alone(error="RuntimeError: no room"), "the engine alone: RuntimeError: no room"),
    ],
)
def test_the_table_shows_the_fraction_beside_its_target(alone: Alone, said: str) -> None:
    one = result()
    rows = tuple(replace(row, beside=compare(row.summary, alone)) for row in one.rows)
    assert said in as_text(replace(one, rows=rows))


def test_the_engine_alone_has_the_options_of_the_servers_engine() -> None:
    words = ["--model", "/m", "--engine", "load=dummy", "--engine=max_batch=64", "--port", "1",
             "--objective", "ttft=off", "--device=cpu", "--max-waiting", "9"]  # fmt: skip
    assert options_in(words) == {
        "model": "/m", "load": "dummy", "max_batch": 64, "device": "cpu", "max_waiting": 9,
    }  # fmt: skip


def test_a_server_that_is_measured_promises_nothing_unless_it_is_told_to() -> None:
    words = words_for("smollm2", None, [], Path())
    assert objectives_in(words) == ["ttft=off", "itl=off"]
    told = words_for("smollm2", None, ["--objective=ttft=0.4", "--objective", "itl=1"], Path())
    assert objectives_in(told) == ["ttft=0.4", "itl=1"]
