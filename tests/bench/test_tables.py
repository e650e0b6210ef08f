"""Tables: what people read holds every row, every claim and every error."""

from __future__ import annotations

from dataclasses import replace

from bench.measured import HEAD, result, row, traffic, typical_rows
from ostinato.bench import Contender, GraphsResult, as_text, claims_of
from ostinato.bench.tables import aligned, claim_lines


def test_cells_stand_under_their_heads() -> None:
    lines = aligned(("", "host", ""), [("eager", "1.00 ms", "a note"), ("raw", "30.0 us", "")])
    assert lines.splitlines() == [
        "          host",
        "eager  1.00 ms  a note",
        "raw    30.0 us",
    ]


def test_every_contender_and_every_claim_is_in_the_text() -> None:
    measured = result()
    text = as_text(measured)
    assert all(each.contender.label in text for each in measured.rows)
    assert all(str(claim) in text for claim in claims_of(measured))


def test_a_row_that_failed_shows_its_error() -> None:
    failed = row(Contender.RAW, host=None, alone=None, wall=None, error="RuntimeError: no luck")
    assert "RuntimeError: no luck" in as_text(result(rows=(failed,)))


def test_results_that_differ_from_eager_are_called_out() -> None:
    assert "DIFFERS FROM EAGER" in as_text(result(rows=typical_rows(agrees=False)))
    assert "DIFFERS FROM EAGER" not in as_text(result())


def test_a_fallback_is_shown_in_its_row() -> None:
    rows = typical_rows(fallback="runs eagerly: host-sync")
    lines = [line for line in as_text(result(rows=rows)).splitlines() if "runs eagerly" in line]
    assert any(line.startswith("ostinato ") for line in lines)


def test_claims_that_are_not_met_come_first_after_the_counts() -> None:
    claims = claims_of(result(traffic=traffic(recording_s=24.0)))
    lines = claim_lines(claims)
    assert lines[0] == f"claims: {len(claims) - 1} met, 1 not met, 0 not measured"
    assert lines[1].strip().startswith("NOT MET: traffic: recording time saved")


def test_reasons_and_notes_of_the_traffic_are_shown() -> None:
    text = as_text(result(traffic=traffic(reasons={"outside-buckets": 2}, note="stopped early")))
    assert "not replayed: 2 x outside-buckets" in text
    assert "stopped early" in text


def test_toy_sizes_and_a_cpu_are_said_at_the_head() -> None:
    assert "toy sizes" in as_text(result(is_tiny=True))
    on_cpu = HEAD | {"machine": {"cpu": "a CPU", "accelerator": None}}
    head = as_text(replace(GraphsResult(HEAD), head=on_cpu)).splitlines()
    assert head[0] == "a CPU, 2026-11-29"
    assert "a CPU shows the semantics; the speed-ups are a GPU's" in head
