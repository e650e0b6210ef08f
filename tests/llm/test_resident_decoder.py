"""The resident loop over a real decoder gives transformers' tokens, and the same in company."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from llm.models.tiny_folders import write
from llm.paged_model import PagedModel
from ostinato.llm.attention import PromptChunk
from ostinato.llm.params import SamplingParams
from ostinato.llm.prefill import Prefiller
from ostinato.llm.resident import Resident

PROMPTS = ([5, 9, 2], [17], list(range(3, 40)), [8, 8, 8, 8, 90, 4])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resident") / "llama"
    write("llama", folder)
    return folder


def answers(
    folder: Path, prompts: Sequence[list[int]], params: SamplingParams, seeds: Sequence[int]
) -> list[tuple[int, ...]]:
    model = PagedModel.load(folder)
    tokens = params.max_tokens
    resident = Resident(
        model.decoder,
        model.backend,
        model.store,
        vocabulary=model.decoder.config.vocabulary,
        max_batch=len(prompts),
        max_pages=8,
        ring=5,
    )
    for row, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        resident.join(
            row, prompt, params, prompt_tokens=len(prompt), stop_ids=(), seed=seed, left=tokens
        )
        resident.set_pages(row, model.grow(row, len(prompt) + tokens))
    prefiller = Prefiller(model.decoder, model.backend, model.store)
    chunks = [PromptChunk(prompt, 0, model.grow(row, 0)) for row, prompt in enumerate(prompts)]
    launches = [resident.begin(range(len(prompts)), prefiller.run(chunks))]
    launches += [resident.launch(5) for _ in range(-(-tokens // 5))]
    gave = [launch.wait() for launch in launches]
    assert gave[-1].finishes == dict.fromkeys(range(len(prompts)), "length")
    assert resident.report().reasons == {}
    return [sum((each.tokens[row] for each in gave), ()) for row in range(len(prompts))]


def test_greedy_tokens_are_those_of_transformers(folder: Path) -> None:
    params = SamplingParams(max_tokens=40, temperature=0)
    ours = answers(folder, PROMPTS, params, seeds=[0] * len(PROMPTS))
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, found in zip(PROMPTS, ours, strict=True):
        ids = torch.tensor([prompt])
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=40,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert found == tuple(whole[0, len(prompt) :].tolist())


def test_seeded_tokens_are_the_same_alone_and_in_company(folder: Path) -> None:
    params = SamplingParams(max_tokens=20, temperature=1.1, top_p=0.95, presence_penalty=0.3)
    prompts, seeds = PROMPTS[:3], [11, 12, 13]
    together = answers(folder, prompts, params, seeds)
    for row in (0, 2):
        assert answers(folder, [prompts[row]], params, [seeds[row]]) == [together[row]]
