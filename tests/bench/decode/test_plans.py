"""Plans measured for a model by its sizes alone, and what is told where they cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llm.models.tiny_folders import write
from ostinato.bench.decode import PlanOptions, plans_as_text, run_plans
from ostinato.errors import OstinatoError, UsageError

pytest.importorskip("triton")

import triton

from ostinato.llm.kernels.tiled_rows import SplitRoom
from ostinato.llm.models import llama, measuring
from ostinato.llm.models.fused import Fused
from ostinato.llm.models.fused_plans import LIBRARY, LayerPlans


def test_a_machine_without_a_gpu_is_told_why_nothing_was_measured() -> None:
    told: list[str] = []
    options = PlanOptions(models=("smollm2-135m",), device="cpu", is_tiny=True)
    result = run_plans(options, tell=told.append)
    assert told == ["smollm2-135m"]
    shown = plans_as_text(result)
    assert "not measured: the fused kernels need a CUDA device, and the model is on cpu" in shown


@pytest.fixture
def fusing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Let layers be fused on a CPU, and note how plans are asked for instead of measuring them."""
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(llama, "reason_against_fused", lambda *given, **named: None)

    def of(cls: type[Fused], decoder: llama.LlamaDecoder) -> Fused:
        room = SplitRoom.empty(torch.device("cpu"))
        return cls(decoder, LayerPlans((), (LIBRARY,)), room, is_early=False)

    monkeypatch.setattr(Fused, "of", classmethod(of))
    asked: list[dict[str, Any]] = []

    def measured(decoder: llama.LlamaDecoder, backend: object, **options: Any) -> LayerPlans:
        asked.append({"sizes": decoder.config.hidden, **options})
        return LayerPlans((), (LIBRARY,), tuple(sorted(options["tokens"])))

    monkeypatch.setattr(measuring, "measure_and_keep", measured)
    return asked


def test_names_and_folders_are_measured_and_the_file_is_named(
    fusing: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    write("llama", folder)
    options = PlanOptions(
        models=("llama3-8b", str(folder)), tokens=(8, 1), device="cpu", is_tiny=True, again=True
    )
    result = run_plans(options, tell=lambda _: None)
    assert [(each["sizes"], each["tokens"], each["again"]) for each in fusing] == [
        (64, (8, 1), True)
    ] * 2
    shown = plans_as_text(result)
    assert f"kept in {tmp_path / 'ostinato' / 'plans.json'}" in shown
    assert shown.count("measured for 1, 8 tokens") == 2


def test_what_time_leaves_is_told(fusing: list[dict[str, Any]]) -> None:
    options = PlanOptions(models=("llama3-8b",), device="cpu", is_tiny=True, budget_s=0)
    shown = plans_as_text(run_plans(options, tell=lambda _: None))
    assert fusing == []
    assert "not measured: not run: the budget of 0 s was spent" in shown


def test_a_number_of_tokens_that_is_never_measured_is_refused(fusing: list[dict[str, Any]]) -> None:
    options = PlanOptions(models=("llama3-8b",), tokens=(7,), device="cpu", is_tiny=True)
    with pytest.raises(UsageError, match="not measured for 7 tokens") as caught:
        run_plans(options, tell=lambda _: None)
    assert caught.value.code == "OST4021"
    assert "1, 2, 4, 8" in caught.value.remedy


def test_a_folder_that_is_none_is_refused_before_anything_is_measured(
    fusing: list[dict[str, Any]], tmp_path: Path
) -> None:
    options = PlanOptions(models=("llama3-8b", str(tmp_path / "none")), device="cpu", is_tiny=True)
    with pytest.raises(OstinatoError):
        run_plans(options, tell=lambda _: None)
    assert fusing == []
