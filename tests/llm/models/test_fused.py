"""Fused layers compute what the composable ones do, by whichever plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.models.conftest import token_ids
from llm.models.tiny_folders import write
from llm.paged_model import PagedModel

pytest.importorskip("triton")

import triton

from ostinato.llm.config import EngineConfig
from ostinato.llm.engine import Engine
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import SplitRoom
from ostinato.llm.models import read_config
from ostinato.llm.models.fused import Fused, sizes_of
from ostinato.llm.models.fused_plans import LIBRARY, Apart, LayerPlan, LayerPlans, plans_for
from ostinato.llm.models.llama import LlamaDecoder
from ostinato.llm.models.paths import reason_against_fused


@pytest.fixture(scope="module", params=["llama-biased-linear-rope", "qwen3-yarn"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fused") / request.param
    write(request.param, place)
    return place


def fused(model: PagedModel, plan: LayerPlan | None) -> None:
    """Make a model on a CPU compute its layers fused; None: by the plans that a GPU has."""
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    decoder = model.decoder
    assert isinstance(decoder, LlamaDecoder)
    plans = plans_for(sizes_of(decoder.config)) if plan is None else LayerPlans((), (plan,))
    decoder.fused = Fused(decoder, plans, SplitRoom.empty(model.device), is_early=False)


def plans_by_name(model: PagedModel) -> dict[str, LayerPlan]:
    _, tiled, library = plans_for(sizes_of(model.decoder.config)).plans
    few = LayerPlan(*(FewPlan(32, 64, 1),) * 4)  # few programs: each is slow here
    return {
        "few": few,
        "tiled": tiled,
        "library": library,
        "mixed 1": LayerPlan(None, tiled.out, tiled.gate_up, None),
        "mixed 2": replace(LIBRARY, qkv=tiled.qkv, gate_up=few.gate_up),
        "apart": replace(LIBRARY, out=Apart(), down=Apart()),
        "mixed 3": LayerPlan(few.qkv, Apart(), tiled.gate_up, Apart()),
    }


@pytest.mark.parametrize(
    "name",
    [
        "few",
        "tiled",
        "library",
        "apart",
        *(pytest.param(f"mixed {n}", marks=pytest.mark.slow) for n in "123"),
    ],
)
@torch.inference_mode()
def test_every_plan_gives_the_composable_logits(folder: Path, name: str) -> None:
    plain, model = PagedModel.load(folder), PagedModel.load(folder)
    fused(model, plans_by_name(model)[name])
    ids = token_ids(6, 3)
    prompts = [(0, 0, ids[:2]), (1, 0, ids[2:3])]
    for found, expected in zip(
        model.prefill(prompts, tokens_wide=4), plain.prefill(prompts), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    # What a step cached is what the next one reads.
    for rows in ([None, (1, 1, ids[3])], [(0, 2, ids[4]), (1, 2, ids[5])]):
        is_there = [row is not None for row in rows]
        found, expected = model.decode(rows)[is_there], plain.decode(rows)[is_there]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["tiled", "library", "mixed 3"])
@torch.inference_mode()
def test_quantised_weights_go_the_same_way(llama_folder: Path, name: str) -> None:
    plain, model = (PagedModel.load(llama_folder, quantize="int8") for _ in range(2))
    fused(model, plans_by_name(model)[name])
    ids = token_ids(3, 4)
    expected = plain.prefill([(0, 0, ids)])[0]
    assert isinstance(model.decoder, LlamaDecoder)
    torch.testing.assert_close(model.prefill([(0, 0, ids)])[0], expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_the_number_of_tokens_chooses_the_plan(llama_folder: Path) -> None:
    plain, model = PagedModel.load(llama_folder), PagedModel.load(llama_folder)
    fused(model, None)
    assert isinstance(model.decoder, LlamaDecoder)
    assert model.decoder.decode_path.name == "fused"
    assert "up to 1 tokens: in registers" in model.decoder.decode_path.why
    for count in (1, 5, 65):
        ids = token_ids(count, count)
        expected = plain.prefill([(count, 0, ids)])[0]
        found = model.prefill([(count, 0, ids)])[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_model_on_a_cpu_is_composable_and_says_why(llama_folder: Path) -> None:
    path = PagedModel.load(llama_folder).decoder.decode_path
    assert path.name == "composable"
    assert path.why == "the fused kernels need a CUDA device, and the model is on cpu"


def test_an_engine_says_by_which_way_and_why(llama_folder: Path) -> None:
    with Engine(EngineConfig(model=llama_folder, device="cpu", deterministic=True)) as engine:
        assert engine.decode_path.name == "composable"
        assert "CUDA" in engine.decode_path.why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"is_invariant": True}, "must not depend on its company"),
        ({"dtype": torch.float16}, "the model is in float16"),
        ({"hidden": 72}, "its hidden size is 72"),
    ],
)
def test_what_does_not_fit_the_kernels_is_told(
    change: dict[str, Any],
    why: str | None,
    llama_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    options = {"dtype": torch.bfloat16, "is_invariant": False} | change
    config = read_config(llama_folder)
    if "hidden" in options:
        config = replace(config, hidden=options.pop("hidden"))
    found = reason_against_fused(config, torch.device("cuda:0"), **options)
    assert found is None if why is None else why in str(found)
