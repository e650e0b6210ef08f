"""The script that measures what a watch costs: whole on a toy, and on times that are made up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import pytest
import torch

from bench.scripts import script as loaded
from ostinato.doctor.collect.bell import Bell

pytest.importorskip("transformers")

CPU = torch.device("cpu")


@pytest.fixture
def overhead(repository: Path) -> Iterator[ModuleType]:
    with loaded(repository, "watch_overhead") as module:
        yield module


@pytest.fixture
def worker(repository: Path) -> Iterator[ModuleType]:
    with loaded(repository, "watch_worker") as module:
        yield module


@pytest.fixture
def clock(repository: Path) -> Iterator[Any]:
    with loaded(repository, "standing_clock") as module:
        yield module.StandingClock()


@pytest.mark.slow
def test_two_processes_take_turns_and_all_is_written(
    overhead: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "watch.json"
    words = ["--tiny", "--programs", "encoder", "--seconds", "0", "--early-s", "0"]
    overhead.main([*words, "--out", str(out)])
    written = json.loads(out.read_text())
    assert (written["is_tiny"], written["by"], written["most"]) == (True, "CPU time", 0.03)
    found = written["programs"]["encoder"]
    assert found["rounds"] == 2  # one of either half
    assert len(found["late"]["overheads"]) == 1
    for kind in ("plain", "watched"):
        assert found[kind]["step_us"]["count"] == 4
        assert found[kind]["step_us"]["median_us"] > 0
    assert found["plain"]["sampling_us"]["median_us"] == found["plain"]["looks_us"]["mean_us"] == 0
    assert min(found["start_us"], found["stop_us"], found["first"]) > 0
    assert capsys.readouterr().out.endswith("at most 3% of a step, in all of them: open\n")


def rounds(overhead: ModuleType, cost: float, *, apart: float = 1.0, count: int = 8) -> list[Any]:
    """Return rounds of both halves, on a machine whose pace changes from round to round.

    Args:
        cost: Of a watch, as a share.
        apart: How much longer the second process takes for the same.
    """
    found = []
    for half in (0, 1):
        for number in range(count):
            pace = 100.0 * (1 + 7 * number % 5)
            first, second = (pace, pace * apart) if half == 0 else (pace * apart, pace)
            blocks = {
                "plain": [{"us": first * 0.9}, {"us": first * 1.1}],
                "watched": [{"us": second * (1 + cost)} for _ in range(2)],
            }
            found.append(overhead.Round(half, 9.0, blocks))
    return found


def test_what_two_processes_differ_by_is_no_cost_of_a_watch(overhead: ModuleType) -> None:
    found = overhead.crossed(rounds(overhead, 0.02, apart=1.4), "us")
    assert found == pytest.approx([0.02] * 8)


def program(overhead: ModuleType, given: list[Any]) -> Any:
    made = overhead.Program("encoder", (None, None), "device", 1, 10)
    made.rounds, made.started_us, made.stopped_us = given, [5.0], [7.0]
    return made


@pytest.mark.parametrize(
    ("cost", "standing"), [(0.02, "borne out"), (0.029, "borne out"), (0.031, "refuted")]
)
def test_the_rounds_settle_the_claim(overhead: ModuleType, cost: float, standing: str) -> None:
    one = program(overhead, rounds(overhead, cost))
    found = overhead.summary(one, "us", early_s=1.0)
    assert found["late"]["standing"] == standing
    assert [each["rounds"] for each in found["late"]["narrowing"]] == [6, 8]
    assert overhead.worst({"encoder": found}) == standing


def test_what_is_rare_counts_though_most_rounds_have_none_of_it(
    overhead: ModuleType,
) -> None:
    given = rounds(overhead, 0.02)
    for number, each in enumerate(given):
        saved_us = 0.08 * each.blocks["plain"][0]["us"] / 0.9 if number % 8 == 3 else 0.0
        for block in each.blocks["watched"]:
            block |= {"saving_us": saved_us / 2, "looks_us": saved_us / 2}
    found = overhead.summary(program(overhead, given), "us", early_s=1.0)["late"]
    # One round of eight has eight percent; its steps are two thirds as long as steps are.
    assert found["rare"] == pytest.approx(0.08 / 8 * 2 / 3)
    assert found["overhead"]["middle"] == pytest.approx(0.02 + found["rare"])


def test_one_program_that_costs_more_refutes_the_claim_for_all(overhead: ModuleType) -> None:
    cheap, dear, unknown = (
        {"late": {"standing": standing}} for standing in ("borne out", "refuted", "open")
    )
    assert overhead.worst({"a": cheap, "b": unknown, "c": dear}) == "refuted"
    assert overhead.worst({"a": cheap, "b": unknown}) == "open"


def test_rounds_of_a_young_watch_judge_nothing(overhead: ModuleType) -> None:
    late = rounds(overhead, 0.01)
    early = [overhead.Round(each.half, 0.5, each.blocks) for each in rounds(overhead, 0.5)]
    found = overhead.summary(program(overhead, [*early, *late]), "us", early_s=1.0)
    assert found["late"]["overhead"]["middle"] == pytest.approx(0.01)
    assert found["early"]["overhead"]["middle"] == pytest.approx(0.5)
    assert found["rounds"] == 16


def test_before_the_processes_have_changed_places_nothing_is_settled(overhead: ModuleType) -> None:
    half = [each for each in rounds(overhead, 0.01) if each.half == 0]
    found = overhead.summary(program(overhead, half), "us", early_s=1.0)
    assert len(found["late"]["uncrossed"]) == 8
    assert overhead.worst({"encoder": found}) == "open"


def test_a_worker_that_ends_is_told(overhead: ModuleType) -> None:
    with (
        overhead.Process("no such program", "tiny") as process,
        pytest.raises(RuntimeError, match="a worker ended with status 1"),
    ):
        process.hear()


def test_the_first_steps_of_a_block_do_not_count(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    made = worker.Worker(lambda: calls.append(1), CPU, tmp_path, None)
    monkeypatch.setattr(worker, "perf_counter", lambda: float(len(calls)))
    assert made.block(lead=5, steps=20).wall_us == 1e6  # a second a step, by that clock
    assert len(calls) == 25


def test_looks_are_told_apart_from_the_steps_and_spread_over_all(worker: ModuleType) -> None:
    times = [(100.0, False), (130.0, True), (102.0, False), (5000.0, False), (90.0, False)]
    assert worker.apart(times) == (101.0, 29.0 / 5)
    assert worker.apart([(130.0, True), (132.0, True)]) == (131.0, 0.0)
    assert worker.apart([(100.0, False)]) == (100.0, 0.0)


@pytest.mark.parametrize("how", ["saved", "watched"])
def test_a_watch_is_on_in_its_blocks_and_gone_behind_them(
    worker: ModuleType, tmp_path: Path, how: str
) -> None:
    import standing_clock  # type: ignore[import-not-found]

    item = torch.Tensor.item
    seen: list[bool] = []
    ones = torch.ones(1)

    def step() -> None:
        seen.append(torch.Tensor.item is not item)
        ones.item()

    clock = standing_clock.StandingClock()
    with clock.in_charge():
        made = worker.Worker(step, CPU, tmp_path, clock)
        order = {"do": "block", "lead": 1, "steps": 2}
        plain = made.obey(order)
        assert made.obey({"do": "watch", "how": how})["us"] > 0
        watched = made.obey(order)
        made.obey({"do": "unwatch"})
        made.obey(order)
    assert seen == [False] * 3 + [True] * 3 + [False] * 3
    assert (plain["sampling_us"], plain["saving_us"]) == (0, 0)
    assert watched["age_s"] > 0
    assert (tmp_path / "evidence.json").exists() == (how == "saved")


def test_the_clock_stands_still_while_no_block_runs(clock: Any) -> None:
    began = perf_counter()
    with clock.going():
        while clock.now() < 0.02:
            pass
    stands = clock.now()
    assert stands >= 0.02
    while perf_counter() - began < 0.1:
        pass
    assert clock.now() == stands < perf_counter() - began
    with clock.going():
        assert clock.now() >= stands


def test_a_bell_is_waited_for_by_the_clock_and_heard_while_it_stands(clock: Any) -> None:
    heard: list[bool] = []
    bell = Bell()
    waiting = threading.Thread(target=lambda: heard.append(clock.wait(bell, 0.01)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()  # its hundredth of a second has not passed
    with clock.going():
        waiting.join(60)
    assert heard == [False]

    waiting = threading.Thread(target=lambda: heard.append(clock.wait(bell, 1000.0)))
    waiting.start()
    bell.ring()
    waiting.join(60)
    assert heard == [False, True]


@pytest.mark.parametrize(
    ("queued_us", "bound"), [(95.0, "host"), (80.0, "host"), (60.0, "both"), (50.0, "device")]
)
def test_what_decides_a_step_follows_from_how_long_queueing_it_takes(
    repository: Path, queued_us: float, bound: str
) -> None:
    with loaded(repository, "watch_programs") as module:
        assert module.bound_by(queued_us, 100.0) == bound


def test_a_decoding_step_finds_as_many_keys_each_time(repository: Path) -> None:
    with loaded(repository, "watch_programs") as module, torch.inference_mode():
        step = module.programs(CPU, tiny=True)["decode"]
        assert len({int(step()) for _ in range(3)}) == 1
        (cache,) = (
            cell.cell_contents
            for cell in step.__closure__
            if hasattr(cell.cell_contents, "get_seq_length")
        )
        assert cache.get_seq_length() == 8
