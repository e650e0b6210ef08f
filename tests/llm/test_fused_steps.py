"""Steps that are kernels from their first to their last give the tokens of those in plain torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.models.tiny_folders import write
from llm.paged_model import PagedModel
from ostinato.llm.attention import PromptChunk
from ostinato.llm.params import SamplingParams
from ostinato.llm.prefill import Prefiller
from ostinato.llm.resident import Produced, Resident

pytest.importorskip("triton")

import triton

from ostinato.llm.kernels import standing
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import SplitRoom
from ostinato.llm.models import build, fused, read_config
from ostinato.llm.models.fused import Fused, sizes_of
from ostinato.llm.models.fused_plans import LIBRARY, Apart, LayerPlan, LayerPlans, plans_for
from ostinato.llm.models.llama import LlamaDecoder

ROWS = {0: [5, 9, 2], 2: list(range(3, 19))}
"""Prompts by row: nobody sits in row 1, and row 2 stands at the end of a page."""
_FEW = LayerPlan(*(FewPlan(32, 64, 1),) * 4)
PLANS = {
    "few": lambda sizes: _FEW,
    "tiled": lambda sizes: plans_for(sizes).plans[1],
    "library": lambda sizes: LIBRARY,
    "mixed": lambda sizes: LayerPlan(_FEW.qkv, Apart(), plans_for(sizes).plans[1].gate_up, Apart()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("steps") / "llama"
    write("llama", place)
    return place


def produced(
    folder: Path,
    plan: str | None,
    params: SamplingParams,
    rows: Mapping[int, list[int]] = ROWS,
) -> list[Produced]:
    """Decode the rows for two launches; `plan`: by kernels, None: in plain torch."""
    decoder = build(
        read_config(folder),
        dtype=torch.float32,
        device=torch.device("cpu"),
        folder=folder,
        is_invariant=False,
    )
    assert isinstance(decoder, LlamaDecoder)
    model = PagedModel(decoder)
    resident = Resident(
        decoder,
        model.backend,
        model.store,
        vocabulary=decoder.config.vocabulary,
        max_batch=max(rows) + 1,
        max_pages=3,
        ring=2,
        most_logprobs=2,
        is_fused=plan is not None,
        backend="eager",
    )
    for row, prompt in rows.items():
        resident.join(row, prompt, params, prompt_tokens=len(prompt), stop_ids=(), seed=row, left=5)
        resident.set_pages(row, model.grow(row, len(prompt) + 5))
    prefiller = Prefiller(decoder, model.backend, model.store)
    prefiller.run([PromptChunk(each[:-1], 0, model.grow(row, 0)) for row, each in rows.items()])
    if plan is not None:
        plans = LayerPlans((), (PLANS[plan](sizes_of(decoder.config)),))
        decoder.fused = Fused(decoder, plans, SplitRoom.empty(model.device), is_early=False)
    return [resident.launch(2).wait() for _ in range(2)]


@pytest.mark.parametrize("plan", ["few", "tiled"])
def test_a_greedy_step_needs_no_launch_for_its_norms_nor_to_stand_up(
    plan: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    norms = [fused.norm_rows, fused.weigh_rows]
    launched: list[str] = []
    for norm in norms:
        monkeypatch.setattr(fused, norm.__name__, partial(_noted, launched, norm), raising=True)
    monkeypatch.setattr(standing, "stand", partial(_noted, launched, standing.stand))
    rows = dict(list(ROWS.items())[:1]) if plan == "few" else ROWS
    produced(folder, plan, SamplingParams(max_tokens=5, temperature=0), rows)
    assert launched == []


def _noted(launched: list[str], kernel: Any, *given: Any, **options: Any) -> Any:
    launched.append(kernel.__name__)
    return kernel(*given, **options)


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {}, {"temperature": 0, "logprobs": 2}], ids=str
)
def test_one_row_alone_gives_the_tokens_of_plain_torch(
    options: dict[str, Any], folder: Path
) -> None:
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    params = SamplingParams(max_tokens=5, **options)
    rows = {0: ROWS[0]}
    expected, found = (produced(folder, plan, params, rows) for plan in (None, "few"))
    assert [each.tokens for each in found] == [each.tokens for each in expected]


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        ("few", {"temperature": 0}),
        ("tiled", {"temperature": 0}),
        ("library", {"temperature": 0}),
        ("mixed", {"temperature": 0}),
        ("few", {"top_k": 5}),
        ("tiled", {"temperature": 0.8, "presence_penalty": 1.0}),
        ("tiled", {"temperature": 0, "logprobs": 2}),
    ],
    ids=str,
)
def test_every_plan_and_level_gives_the_tokens_of_plain_torch(
    plan: str, options: dict[str, Any], folder: Path
) -> None:
    if not triton.knobs.runtime.interpret:
        pytest.skip("kernels are compiled in this process: it has a GPU")
    params = SamplingParams(max_tokens=5, **options)
    expected, found = produced(folder, None, params), produced(folder, plan, params)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert found[0].tokens.keys() == ROWS.keys()
    for ours, plain in zip(found, expected, strict=True):
        assert ours.logprobs.keys() == plain.logprobs.keys()
        for row, reports in ours.logprobs.items():
            chosen = [each.chosen for each in reports]
            assert chosen == pytest.approx([each.chosen for each in plain.logprobs[row]], abs=1e-4)
