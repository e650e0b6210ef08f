"""Forwards: every model at toy size, every contender that a CPU has, and every way to fail."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ostinato.bench import Contender, Row, forwards, read_options
from ostinato.bench.attempt import Deadline
from ostinato.bench.contenders import Bench
from ostinato.bench.models import Workload
from ostinato.bench.options import FORWARDS

CPU = torch.device("cpu")


def measure(model: str, contenders: str, deadline: Deadline | None = None) -> list[Row]:
    options = read_options(model, contenders, is_tiny=True)
    return forwards.measure_forward(
        model, options, CPU, deadline or Deadline(None), lambda what: None
    )


def workload(module: nn.Module) -> Workload:
    inputs = tuple(torch.randn(2, 4) for _ in range(4))
    return Workload("toy", "fp32", module.eval(), inputs, 1e-3)


@pytest.mark.parametrize("model", FORWARDS)
def test_every_model_is_timed_and_agrees_with_eager(model: str) -> None:
    rows = measure(model, "eager,owned,leased")
    assert [row.contender for row in rows] == ["eager", "owned", "leased"]
    for row in rows:
        assert (row.error, row.fallback, row.note) == ("", "", "")
        assert row.host is not None
        assert row.wall is not None
        assert row.agrees is True
    assert rows[1].recording_s is not None
    assert rows[1].reported_bytes is not None


def test_what_needs_a_gpu_is_a_row_that_says_so() -> None:
    rows = measure("bert-128", "callables,raw")
    assert [row.error for row in rows] == ["needs a CUDA device"] * 2


def test_a_spent_budget_leaves_every_row_with_the_reason() -> None:
    rows = measure("resnet50", "eager,owned", Deadline(0))
    assert [row.error for row in rows] == ["not run: the budget of 0 s was spent"] * 2


def test_a_model_that_cannot_be_built_is_an_error_in_every_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> Workload:
        raise OSError("no weights")

    monkeypatch.setattr(forwards, "build_workload", broken)
    assert [row.error for row in measure("minilm", "eager,owned")] == ["OSError: no weights"] * 2


def test_calls_that_run_eagerly_say_why_in_their_row() -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.max().item()

    ready = Bench(workload(Reads()), CPU).build(Contender.OWNED)
    assert ready.fallback.startswith("runs eagerly: host-sync")
    ready.close()


def test_a_result_that_differs_from_eager_is_found_for_any_input_of_the_pool() -> None:
    given = workload(nn.Identity())
    stale = given.inputs[0]
    compared = forwards._compare(lambda x: stale, given)
    assert not compared.agrees(given.tolerance)
    assert forwards._compare(lambda x: x + 0, given).agrees(given.tolerance)


def test_a_result_that_is_not_a_number_never_agrees() -> None:
    given = workload(nn.Identity())
    compared = forwards._compare(lambda x: x * float("nan"), given)
    assert not compared.agrees(given.tolerance)


@pytest.mark.slow
@pytest.mark.skipif(
    " " in sys.prefix,
    reason="torch hands its own folder to the linker unquoted, so nothing compiles in a path "
    "with a space",
)
@pytest.mark.filterwarnings("ignore")  # torch.compile gives its own, which differ by version
def test_compiled_contenders_run_and_agree_where_a_compiler_is_installed() -> None:
    rows = measure("minilm", "eager,compile,reduce-overhead,inside")
    assert [row.error for row in rows] == [""] * 4
    assert all(row.agrees for row in rows)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch.compile's own, which differ by version
def test_on_a_gpu_every_contender_runs_and_agrees() -> None:
    options = read_options("bert-128", is_tiny=True)
    options = replace(options, contenders=tuple(Contender))
    rows = forwards.measure_forward(
        "bert-128", options, torch.device("cuda", 0), Deadline(None), lambda what: None
    )
    assert [(row.contender, row.error, row.fallback) for row in rows] == [
        (each, "", "") for each in Contender
    ]
    assert all(row.agrees for row in rows)
    assert all(row.kept_bytes is not None for row in rows)
