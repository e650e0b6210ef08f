"""Decoding by hand: the steps that a GPU would capture, run as they are, are transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.bench import models, read_options
from ostinato.bench.by_hand import Advance, GraphedCallable, RawGraph, Step

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    options = read_options("smollm2-decode", is_tiny=True)
    return models.smollm2(options, CPU, torch.float32)[0]


def warmed(step: Step) -> Step:
    """What capturing does to the state: the step runs a few times first."""
    for _ in range(4):
        step()
    return step


def copied_in_and_out(advance: Advance, sample: tuple[Tensor, Tensor]) -> Advance:
    """What torch's graphed callables do: fixed inputs that are filled, fixed outputs."""
    outputs = [each.clone() for each in advance(*sample)]

    def call(*given: Tensor) -> tuple[Tensor, Tensor]:
        for static, each in zip(sample, given, strict=True):
            static.copy_(each)
        for output, made in zip(outputs, advance(*sample), strict=True):
            output.copy_(made)
        return outputs[0], outputs[1]

    return call


WAYS: dict[str, Callable[[Any, int], Any]] = {
    "raw": lambda model, length: RawGraph(model, length, warmed),
    "callables": lambda model, length: GraphedCallable(model, length, copied_in_and_out),
}


@pytest.mark.parametrize("way", WAYS)
def test_answers_are_those_of_generate_one_after_the_other(way: str, model: Any) -> None:
    by_hand = WAYS[way](model, 40)
    for columns in (8, 8, 5, 12):
        prompt = torch.randint(1, 128, (1, columns))
        wanted = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False
        )
        assert torch.equal(by_hand.generate(prompt, max_new_tokens=20), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [RawGraph, GraphedCallable])
def test_captured_answers_are_those_of_generate(kind: Any) -> None:
    torch.manual_seed(0)
    options = read_options("smollm2-decode", is_tiny=True)
    on_gpu = models.smollm2(options, torch.device("cuda:0"), torch.float32)[0]
    by_hand = kind(on_gpu, 40)
    for columns in (8, 5):
        prompt = torch.randint(1, 128, (1, columns), device="cuda:0")
        wanted = on_gpu.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False
        )
        assert torch.equal(by_hand.generate(prompt, max_new_tokens=20), wanted)
