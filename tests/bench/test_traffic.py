"""Traffic: what is counted after the warm-up, and what the recordings cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ostinato import Decision, Outcome, Reason
from ostinato.bench import TrafficRow, read_options, traffic
from ostinato.bench.attempt import Deadline
from ostinato.bench.options import TINY, GraphsOptions
from ostinato.bench.results import Reuse
from ostinato.bench.trace import Request

CPU = torch.device("cpu")


def measure(options: GraphsOptions, deadline: Deadline | None = None) -> TrafficRow:
    return traffic.measure_traffic(options, CPU, deadline or Deadline(None), lambda what: None)


def of_lengths(tmp_path: Path, lengths: list[int], learnt_from: int) -> GraphsOptions:
    """Options whose trace has these prompt lengths, and answers of three tokens."""
    file = tmp_path / "trace.csv"
    lines = [f"t,{length * 16},48" for length in lengths]
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    options = read_options("traffic", trace=file, is_tiny=True)
    effort = replace(TINY, learnt_from=learnt_from, requests=len(lengths) - learnt_from)
    return replace(options, effort=effort)


def test_calls_after_the_warm_up_are_counted_by_what_answered_them(tmp_path: Path) -> None:
    row = measure(of_lengths(tmp_path, [8, 16, 8, 16, 7, 200], learnt_from=3))
    assert row.error == ""
    assert row.buckets == (8, 16)
    assert (row.learnt_from, row.requests) == (3, 3)
    assert (row.prefill.calls, row.prefill.replays) == (3, 2)
    assert row.reasons == {"outside-buckets": 1}
    assert (row.decode.calls, row.decode.replays) == (6, 6)
    assert row.both.rate == 8 / 9


def test_both_ways_of_recording_are_counted_over_the_same_requests(tmp_path: Path) -> None:
    row = measure(of_lengths(tmp_path, [8, 16, 9, 10, 11, 12], learnt_from=2))
    assert row.exact_requests == 6
    assert row.recordings == 2 + 1  # two buckets and the step
    assert row.exact_recordings == 6 + 1
    assert row.exact_prefill.replays == 0
    assert row.recording_s > 0
    assert row.exact_recording_s > 0
    assert row.padded_share == pytest.approx(22 / 64)


def test_a_time_limit_ends_the_serving_and_is_noted(tmp_path: Path) -> None:
    options = of_lengths(tmp_path, [8] * 12, learnt_from=2)
    row = measure(replace(options, effort=replace(options.effort, traffic_s=0.0)))
    assert row.requests == 1
    assert "stopped after 0 s at request 3 of 12" in row.note


def test_a_spent_budget_is_a_row_with_the_reason() -> None:
    row = measure(read_options("traffic", is_tiny=True), Deadline(0))
    assert row.error == "not run: the budget of 0 s was spent"


def test_a_call_that_is_no_replay_weighs_as_the_average_recording() -> None:
    class Told:
        def __init__(self, decision: Decision) -> None:
            self.last = decision

    tally = traffic._Tally()
    for decision in (
        Decision(Outcome.REPLAYED, graph_id="a"),
        Decision(Outcome.REPLAYED, graph_id="b"),
        Decision(Outcome.RECORDED, graph_id="b"),
        Decision.eager(Reason.OUTSIDE_BUCKETS),
    ):
        tally.take(Told(decision))  # type: ignore[arg-type]
    assert tally.reuse({"a": 10, "b": 30}) == Reuse(4, 2, 80.0, 40.0)
    assert tally.others == {"recorded": 1, "outside-buckets": 1}


def test_a_small_decoder_gets_scaled_lengths_and_a_large_one_the_real_ones() -> None:
    options = read_options("traffic", is_tiny=True)
    small, source, how = traffic.requests_for(options, traffic._CPU)
    large, _, how_large = traffic.requests_for(options, traffic._GPU)
    assert source.startswith("drawn")
    assert "lengths x 0.0625" in how
    assert "lengths" not in how_large
    assert small[0] == Request(round(large[0].context / 16), round(large[0].generated / 16))
