"""Kernels of a step: what whole answers ran beyond the first tokens, for one step that was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
import torch

from ostinato.bench.decode.kernels import Seen, kernels_of, steps_between
from ostinato.bench.decode.rows import KernelTime


def seen(ran: Mapping[str, tuple[int, float]]) -> Seen:
    """What ran, by name: how often, and microseconds of one run."""
    return Seen(
        Counter({name: count for name, (count, _) in ran.items()}),
        Counter({name: count * us for name, (count, us) in ran.items()}),  # type: ignore[misc]
    )


FIRST = {"_settle": (1, 3.0), "_prefill": (32, 9.0), "_gate_up": (0, 0.0)}


def test_only_steps_that_were_seen_are_counted() -> None:
    # 16 launches of 8 steps, of which the first of each is seen, beside the prefill and its end.
    whole = {"_settle": (17, 3.0), "_prefill": (32, 9.0), "_gate_up": (16 * 32, 50.0)}
    assert steps_between(seen(FIRST), seen(whole)) == (
        KernelTime("_gate_up", 32.0, 1600.0),
        KernelTime("_settle", 1.0, 3.0),
    )


def test_two_prefills_that_differ_a_little_are_no_part_of_a_step() -> None:
    whole = {"_settle": (17, 3.0), "_prefill": (35, 9.0), "look": (7, 1.0), "_norm": (8, 1.0)}
    assert [each.name for each in steps_between(seen(FIRST), seen(whole))] == ["_settle", "_norm"]


def test_a_kernel_that_both_run_counts_for_the_steps_with_the_rest() -> None:
    whole = {"_settle": (3, 3.0), "_prefill": (32 + 2 * 32, 9.0)}
    found = {each.name: each.per_step for each in steps_between(seen(FIRST), seen(whole))}
    assert found == {"_prefill": 32.0, "_settle": 1.0}


def test_where_no_step_was_seen_nothing_is_said() -> None:
    assert steps_between(seen(FIRST), seen(FIRST)) == ()
    assert steps_between(seen({}), seen({"other": (3, 1.0)})) == ()


def test_the_longest_come_first_and_names_are_cut() -> None:
    ran = {f"{'k' * 90}{each}": (1, float(each)) for each in range(1, 40)}
    found = steps_between(seen({}), seen(ran | {"_settle": (1, 0.5)}))
    assert len(found) == 24
    assert [each.us for each in found[:2]] == [39.0, 38.0]
    assert found[0].name == "k" * 80


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_run() -> None:
    assert kernels_of(lambda: 1 / 0, lambda: 1 / 0) == ()
