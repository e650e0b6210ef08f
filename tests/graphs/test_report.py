"""The report: numbers that add up, words that people and programs can read."""

import json

import torch
from torch import Tensor

from ostinato.graphs import Buckets, Report, graphed


def step(x: Tensor) -> Tensor:
    return (x * 2).relu() + 1


def three_shapes(device: torch.device) -> Report:
    runner = graphed(step)
    for length, calls in ((2, 10), (3, 4), (4, 1)):
        for _ in range(calls):
            runner(torch.ones(length, device=device))
    for _ in range(3):
        runner(torch.ones(0, device=device))
    return runner.report()


def test_calls_are_replays_recordings_and_eager_calls(device: torch.device) -> None:
    report = three_shapes(device)
    assert (report.calls, report.replays, report.recordings) == (18, 10, 2)
    assert report.reasons == {"not-admitted-yet": 3, "empty-batch": 3}
    assert report.calls == report.replays + report.recordings + sum(report.reasons.values())
    assert report.reuse_rate == 10 / 18
    assert sum(graph.hits for graph in report.graphs) == report.replays
    assert report.bytes == sum(graph.bytes for graph in report.graphs) > 0
    assert "has shape [0]" in report.details["empty-batch"]


def test_reuse_can_be_weighed_by_work(device: torch.device) -> None:
    def heavy_if_long(x: Tensor) -> Tensor:
        for _ in range(30 if x.shape[0] > 2 else 1):
            x = torch.cosh(x * 0.1)
        return x

    runner = graphed(heavy_if_long)
    for _ in range(10):
        runner(torch.ones(2, device=device))  # 8 replays of a light graph
    for _ in range(4):
        runner(torch.ones(3, device=device))  # 2 replays of a heavy one
    report = runner.report()
    light, heavy = sorted(graph.nodes for graph in report.graphs)
    assert heavy >= 20 * light
    work = 10 * light + 4 * heavy
    assert report.reuse_rate_by_nodes == (8 * light + 2 * heavy) / work
    assert report.reuse_rate == 10 / 14
    runner.close()
    assert 0 < runner.report().reuse_rate_by_nodes < 1


def test_a_runner_that_was_never_called_reports_zeros() -> None:
    report = graphed(step).report()
    assert (report.calls, report.reuse_rate, report.reuse_rate_by_nodes) == (0, 0.0, 0.0)
    assert report.heat_map() == "no recordings"
    assert "0 replayed" in str(report)


def test_it_is_plain_values_that_json_can_hold(device: torch.device) -> None:
    report = three_shapes(device)
    values = json.loads(json.dumps(report.to_dict()))
    assert values["calls"] == 18
    assert values["reasons"] == report.reasons
    for graph in values["graphs"]:
        assert {"graph_id", "hits", "bytes", "build_seconds", "signature"} <= graph.keys()
        assert graph["build_seconds"] > 0
        assert "x=float32[" in graph["signature"]


def test_it_reads_as_a_table(device: torch.device) -> None:
    text = str(three_shapes(device))
    assert "18, 10 replayed (55.6%)" in text
    assert "not-admitted-yet" in text
    assert "step#1" in text


def test_the_heat_map_draws_the_hottest_longest(device: torch.device) -> None:
    lines = three_shapes(device).heat_map(width=8).splitlines()
    assert lines[0].startswith("████████ ")
    assert "step#1" in lines[0]
    assert lines[1].startswith("██")
    assert not lines[1].startswith("███")
    assert "2  step#2" in lines[1]


def test_padding_is_accounted_for(device: torch.device) -> None:
    runner = graphed(step, buckets={"x": Buckets(dim=0, sizes=(8,))}, admit_after=1)
    for length in (8, 6, 2):
        runner(torch.ones(length, device=device))
    report = runner.report()
    assert (report.padded_rows, report.real_rows) == (2 + 6, 6 + 2)
    assert "50.0% of the replayed rows" in str(report)


def test_dropped_recordings_keep_their_replays_in_the_count(device: torch.device) -> None:
    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(5):
        runner(x)
    runner.invalidate()
    report = runner.report()
    assert (report.calls, report.replays) == (5, 4)
    assert report.reuse_rate_by_nodes == 4 / 5
