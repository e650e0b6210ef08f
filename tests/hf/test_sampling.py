"""Sampling draws from the model's own distribution, and a seed repeats it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ostinato.hf import Answer, accelerate

Make = Callable[..., Any]

WARPERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_k": 0, "top_p": 0.8},
    {"top_k": 0, "min_p": 0.1},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.7, "min_p": 0.02, "repetition_penalty": 1.4},
    {"top_k": 500, "min_new_tokens": 6, "suppress_tokens": [9, 11]},
]


@pytest.mark.parametrize("options", WARPERS, ids=str)
def test_a_seed_gives_the_tokens_that_it_gives_the_model(
    options: dict[str, Any], tiny: Make, prompt: Make
) -> None:
    model = tiny()
    inputs = prompt(3, 12)
    with accelerate(model) as fast:
        for seed in range(4):
            torch.manual_seed(seed)
            ours = fast.generate(**inputs, do_sample=True, max_new_tokens=25, **options)
            after = torch.rand(1)
            torch.manual_seed(seed)
            theirs = model.generate(**inputs, do_sample=True, max_new_tokens=25, **options)
            assert ours.tolist() == theirs.tolist()
            assert after == torch.rand(1), "the draw took more or fewer random numbers"
        assert fast.last.outcome is Answer.REPLAYED


def test_a_seed_repeats_a_result(device: torch.device, tiny: Make, prompt: Make) -> None:
    inputs = prompt(2, 12, device)
    with accelerate(tiny(device=device)) as fast:
        fast.generate(**inputs, do_sample=True, max_new_tokens=5)
        results = []
        for seed in (7, 8, 7):
            torch.manual_seed(seed)
            results.append(fast.generate(**inputs, do_sample=True, max_new_tokens=25).tolist())
    assert results[0] == results[2] != results[1]


def test_an_answer_that_ends_early_draws_no_more_than_the_models_own(
    tiny: Make, prompt: Make
) -> None:
    model, inputs = tiny(), prompt(2, 9)
    free = model.generate(**inputs, max_new_tokens=20, eos_token_id=None)
    options = {"do_sample": True, "top_k": 1, "max_new_tokens": 20}
    options["eos_token_id"] = [int(free[0, 14]), int(free[1, 17])]
    after = []
    with accelerate(model, eos_check_every=64) as fast:
        for generate in (model.generate, fast.generate):
            torch.manual_seed(5)
            assert generate(**inputs, **options).shape[1] < 29
            after.append(torch.random.get_rng_state())
        assert fast.last.outcome is Answer.REPLAYED
    assert torch.equal(*after)


def test_another_temperature_needs_no_other_recording(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny()) as fast:
        options = {"do_sample": True, "max_new_tokens": 12, "eos_token_id": None}
        fast.generate(**prompt(), temperature=0.7, top_p=0.9, **options)
        made = fast.report().runners.counts["recordings"]
        fast.generate(**prompt(), temperature=1.3, top_p=0.5, **options)
        assert fast.report().to_dict()["recordings"] <= made + 1  # the prompt's second visit
        assert fast.last.replayed_steps == fast.last.steps == 11


def _frequencies(tokens: torch.Tensor, kept: list[int]) -> torch.Tensor:
    return torch.tensor([int((tokens == token).sum()) for token in kept], dtype=torch.float64)


@pytest.mark.parametrize("options", WARPERS[:6], ids=str)
def test_draws_follow_the_models_distribution(
    options: dict[str, Any], device: torch.device, tiny: Make, prompt: Make
) -> None:
    """Chi-square of 4000 second tokens, each drawn by a replayed step, against exact odds."""
    model = tiny(device=device)
    rows, width = 500, 7
    one = prompt(1, width, device)["input_ids"]
    ids = one.expand(rows, -1).contiguous()
    # The first token is forced, so that the second one's odds can be computed.
    forced = {"begin_suppress_tokens": [t for t in range(97) if t != 42], "eos_token_id": None}
    draws = []
    torch.manual_seed(1)
    with accelerate(model) as fast:
        for _ in range(8):
            tokens = fast.generate(ids, do_sample=True, max_new_tokens=2, **forced, **options)
            assert fast.last.outcome is not Answer.DELEGATED
            assert (tokens[:, width] == 42).all()
            draws.append(tokens[:, width + 1])
        assert fast.last.replayed_steps == 1
    drawn = torch.cat(draws).cpu()
    odds = _exact_odds(model, torch.cat((one, one.new_tensor([[42]])), dim=1), options)
    assert set(drawn.tolist()) <= set(odds.nonzero().flatten().tolist())
    kept = [token for token in range(97) if odds[token] * len(drawn) >= 8]
    expected = odds[kept] * len(drawn)
    statistic = float(((_frequencies(drawn, kept) - expected) ** 2 / expected).sum())
    # 4 standard deviations above the mean of chi-square: fails once in some ten thousand.
    degrees = max(len(kept) - 1, 1)
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5 + 6


def _exact_odds(model: Any, ids: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    config, _ = model._prepare_generation_config(None, do_sample=True, **options)
    model._prepare_special_tokens(config, True, device=ids.device)
    processors = model._get_logits_processor(config, input_ids_seq_length=ids.shape[1])
    with torch.no_grad():
        scores = processors(ids, model(ids).logits[:, -1].float())
    return scores[0].double().softmax(dim=-1).cpu()


def test_several_sequences_of_one_prompt(tiny: Make, prompt: Make) -> None:
    model = tiny()
    options = {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 12}
    with accelerate(model) as fast:
        torch.manual_seed(3)
        ours = fast.generate(**prompt(2, 9), **options)
        assert fast.last.outcome is not Answer.DELEGATED
    torch.manual_seed(3)
    assert ours.tolist() == model.generate(**prompt(2, 9), **options).tolist()
