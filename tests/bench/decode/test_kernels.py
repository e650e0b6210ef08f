"""Kernels of a step: what ran once every row sat, for one of the steps that were seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ostinato.bench.decode.kernels import Ran, Watched, busy_us, kernels_of, steps_of
from ostinato.bench.decode.rows import OURS, DecodeResult, DecodeRow, KernelTime, read_result
from ostinato.bench.decode.tables import as_text


def in_turn(*names: str, us: float = 2.0) -> list[Ran]:
    """What ran one after the other, a microsecond apart."""
    return [Ran(name, at * (us + 1), at * (us + 1) + us) for at, name in enumerate(names)]


PROMPTS = ("_prefill", "_gate", "_settle")
STEP = ("_qkv", "_qkv", "_settle")


def test_only_steps_that_were_seen_are_counted() -> None:
    assert steps_of(in_turn(*PROMPTS, *STEP, *STEP, *STEP)) == (
        KernelTime("_qkv", 2.0, 4.0),
        KernelTime("_settle", 1.0, 2.0),
    )


def test_steps_between_two_prompts_are_of_a_smaller_batch_and_no_part_of_it() -> None:
    some = ("_other", "_settle")
    found = steps_of(in_turn(*PROMPTS, *some, *some, *PROMPTS, *STEP))
    assert [each.name for each in found] == ["_qkv", "_settle"]


def test_what_follows_the_last_step_is_no_part_of_one() -> None:
    found = steps_of(in_turn(*PROMPTS, *STEP, "copy", "copy"))
    assert [each.name for each in found] == ["_qkv", "_settle"]


def test_a_step_of_which_a_part_was_lost_is_none() -> None:
    layers = ("_qkv",) * 20
    lost = ("_qkv",) * 9
    seen = [*PROMPTS, *layers, "_settle", *lost, "_settle", *layers, "look", "_settle"]
    found = {each.name: each.per_step for each in steps_of(in_turn(*seen))}
    assert found == {"_qkv": 20.0, "_settle": 1.0, "look": 0.5}


def test_events_may_come_in_any_order() -> None:
    ran = in_turn(*PROMPTS, *STEP, *STEP)
    assert steps_of(ran[::-1]) == steps_of(ran)


@pytest.mark.parametrize("names", [(), ("other",) * 3, PROMPTS, (*PROMPTS, "_qkv"), STEP])
def test_where_no_step_was_seen_nothing_is_said(names: tuple[str, ...]) -> None:
    assert steps_of(in_turn(*names)) == ()


def test_the_longest_come_first_and_names_are_cut() -> None:
    long = [Ran(f"{'k' * 90}{each}", 10.0, 10.0 + each) for each in range(1, 40)]
    found = steps_of([*in_turn("_settle"), *long, Ran("_settle", 60.0, 60.5)])
    assert len(found) == 24
    assert [each.us for each in found[:2]] == [39.0, 38.0]
    assert found[0].name == "k" * 80


def test_a_device_is_busy_while_at_least_one_kernel_runs() -> None:
    apart = [Ran("a", 0.0, 2.0), Ran("b", 5.0, 6.0)]
    over_another = [Ran("c", 1.0, 3.0), Ran("d", 1.5, 2.5)]
    assert busy_us(apart) == 3.0
    assert busy_us([*over_another, *apart]) == 4.0
    assert busy_us([]) == 0.0


def test_kernels_are_shown_written_and_left_out_when_read_again(tmp_path: Path) -> None:
    row = DecodeRow(
        OURS,
        "llama3-8b",
        256,
        ttft_ms=745.0,
        submit_ms=31.0,
        first_busy_ms=640.5,
        first_kernels=(KernelTime("nvjet", 1024.0, 6e5),),
        kernels=(KernelTime("_qkv", 32.0, 671.0),),
    )
    shown = as_text(DecodeResult({}, rows=(row,)))
    assert "batch 256: kernels of a step, 671.0 us" in shown
    assert "kernels run for 640.50 ms of 745.00; handed in within 31.00" in shown
    assert " 600000.0    1024 x nvjet" in shown

    file = tmp_path / "result.json"
    file.write_text(json.dumps(DecodeResult({}, rows=(row,)).to_dict()))
    read = read_result(file).rows[0]
    assert (read.first_busy_ms, read.submit_ms) == (640.5, 31.0)
    assert (read.kernels, read.first_kernels) == ((), ())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_run() -> None:
    assert kernels_of(lambda: 1 / 0, lambda: 1 / 0, layers=1) == Watched()
