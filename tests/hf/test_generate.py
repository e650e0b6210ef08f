"""`generate` returns what the model's own returns: greedy decoding, all shapes of request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from ostinato.hf import Answer, accelerate

Make = Callable[..., Any]


def assert_same(fast: Any, model: Any, inputs: Any, **options: Any) -> torch.Tensor:
    ours = fast.generate(**inputs, **options)
    assert fast.last.outcome is not Answer.DELEGATED, fast.last
    theirs = model.generate(**inputs, **options)
    assert ours.dtype == theirs.dtype
    assert ours.device == theirs.device
    assert ours.tolist() == theirs.tolist()
    return ours


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("rows", [1, 3])
def test_greedy_tokens_are_those_of_the_model(
    kind: str, device: torch.device, attention: str, rows: int, tiny: Make, prompt: Make
) -> None:
    model = tiny(kind, device, attention=attention)
    with accelerate(model) as fast:
        inputs = prompt(rows, 13, device)
        tokens = assert_same(fast, model, inputs, max_new_tokens=40, eos_token_id=None)
    assert len(set(tokens[0, 13:].tolist())) > 8, "a text of one token would prove nothing"


def test_lengths_of_many_prompts_share_buckets_and_stay_right(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        for columns in (1, 2, 15, 16, 17, 40, 3, 64, 65):
            assert_same(fast, model, prompt(1, columns, seed=columns), max_new_tokens=9)


def test_a_prompt_longer_than_every_bucket_is_right(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model, prefill_buckets=(4, 8)) as fast:
        assert_same(fast, model, prompt(1, 30), max_new_tokens=9)
        assert_same(fast, model, prompt(1, 5), max_new_tokens=9)


def test_an_earlier_longer_request_leaves_nothing_behind(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        assert_same(fast, model, prompt(2, 50, seed=1), max_new_tokens=12)
        for layer in fast._sessions[2].state.cache.layers:
            layer.values.fill_(torch.inf)
        assert_same(fast, model, prompt(2, 6, seed=2), max_new_tokens=12)


def test_the_cache_grows_when_a_request_needs_more(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        assert_same(fast, model, prompt(1, 9), max_new_tokens=20)
        small = fast._sessions[1].length
        assert_same(fast, model, prompt(1, 9), max_new_tokens=small + 10)
        assert fast._sessions[1].length > small
        grown = fast._sessions[1]
        assert_same(fast, model, prompt(1, 9), max_new_tokens=20)
        assert fast._sessions[1] is grown


def test_batch_sizes_take_turns_and_the_oldest_is_dropped(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        for rows in (1, 2, 3, 4, 1, 5):
            assert_same(fast, model, prompt(rows, 11), max_new_tokens=6)
        assert set(fast._sessions) == {3, 4, 1, 5}


def test_rows_end_one_by_one_and_are_padded(tiny: Make, prompt: Make, device: torch.device) -> None:
    model = tiny(device=device)
    inputs = prompt(3, 12, device)
    free = model.generate(**inputs, max_new_tokens=30, eos_token_id=None)
    ends = [int(free[row, 12 + step]) for row, step in ((0, 4), (1, 9), (2, 17))]
    for look_every in (None, 1, 5, 64):
        with accelerate(model, eos_check_every=look_every) as fast:
            tokens = assert_same(fast, model, inputs, max_new_tokens=30, eos_token_id=ends)
            assert tokens.shape[1] < 42, "no row ended early"
            assert fast.last.steps >= fast.last.new_tokens - 1
            if device.type == "cpu":
                assert fast.last.steps == fast.last.new_tokens - 1, "it went on after the end"
                assert fast.last.replayed_steps == fast.last.steps


def test_one_end_for_all_rows(tiny: Make, prompt: Make) -> None:
    model = tiny()
    inputs = prompt(2, 12)
    free = model.generate(**inputs, max_new_tokens=20, eos_token_id=None)
    with accelerate(model, eos_check_every=4) as fast:
        for step in (0, 1, 7):
            end = int(free[0, 12 + step])
            assert_same(fast, model, inputs, max_new_tokens=20, eos_token_id=end, pad_token_id=96)


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 20},
        {"max_new_tokens": 1},
        {"max_new_tokens": 25, "min_new_tokens": 25},
        {"max_new_tokens": 25, "min_length": 20},
        {"max_new_tokens": 25, "suppress_tokens": [5, 17, 40]},
        {"max_new_tokens": 25, "begin_suppress_tokens": list(range(3, 90))},
        {"max_new_tokens": 25, "repetition_penalty": 1.7},
        {"max_new_tokens": 25, "renormalize_logits": True},
        {"max_new_tokens": 12, "cache_implementation": "static", "disable_compile": True},
        {},
    ],
    ids=str,
)
def test_options_of_greedy_decoding(options: dict[str, Any], tiny: Make, prompt: Make) -> None:
    model = tiny()
    inputs = prompt(2, 12)
    with nullcontext() if options else pytest.warns(UserWarning, match="max_length"):
        end = int(model.generate(**inputs, max_new_tokens=30, eos_token_id=None)[0, 15])
        model.generation_config.eos_token_id = [end, 2]
        with accelerate(model) as fast:
            assert_same(fast, model, inputs, **options)


def test_defaults_come_from_the_generation_config(tiny: Make, prompt: Make) -> None:
    model = tiny()
    model.generation_config.max_new_tokens = 7
    model.generation_config.repetition_penalty = 1.3
    with accelerate(model) as fast:
        tokens = assert_same(fast, model, prompt(1, 9))
    assert tokens.shape[1] == 16


def test_a_generation_config_may_be_given(tiny: Make, prompt: Make) -> None:
    from transformers import GenerationConfig

    model = tiny()
    config = GenerationConfig(max_new_tokens=11, do_sample=False, eos_token_id=2, pad_token_id=0)
    with accelerate(model) as fast:
        assert_same(fast, model, prompt(2, 9), generation_config=config)


def test_ids_may_be_positional_and_the_mask_inferred_from_padding(tiny: Make, prompt: Make) -> None:
    model = tiny()
    ids = prompt(3, 14)["input_ids"]
    with accelerate(model) as fast:
        ours = fast.generate(ids, max_new_tokens=10)
        assert fast.last.outcome is not Answer.DELEGATED
    assert ours.tolist() == model.generate(ids, max_new_tokens=10).tolist()


def test_the_result_is_the_callers_own(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny()) as fast:
        first = fast.generate(**prompt(1, 9, seed=1), max_new_tokens=9)
        kept = first.clone()
        fast.generate(**prompt(1, 9, seed=2), max_new_tokens=9)
    assert torch.equal(first, kept)


def test_a_caller_in_inference_mode_is_served_before_and_after(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        with torch.inference_mode():
            assert_same(fast, model, prompt(1, 9), max_new_tokens=9)
        assert_same(fast, model, prompt(1, 9), max_new_tokens=9)


@pytest.mark.gpu
def test_ids_on_the_host_are_answered_on_the_host(tiny: Make, prompt: Make) -> None:
    model = tiny(device="cuda")
    with accelerate(model) as fast:
        ours = fast.generate(**prompt(2, 9), max_new_tokens=9)
    assert ours.device.type == "cpu"
    with pytest.warns(UserWarning, match="on a device type different than your model's device"):
        theirs = model.generate(**prompt(2, 9), max_new_tokens=9)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_equals_the_same_step_run_eagerly(
    dtype: torch.dtype, device: torch.device, kind: str, tiny: Make, prompt: Make
) -> None:
    model = tiny(kind, device).to(dtype)
    with accelerate(model) as fast, accelerate(model, backend="eager") as eager:
        for rows in (1, 3):
            inputs = prompt(rows, 13, device)
            ours = fast.generate(**inputs, max_new_tokens=16)
            again = fast.generate(**inputs, max_new_tokens=16)
            expected = eager.generate(**inputs, max_new_tokens=16)
            assert fast.last.outcome is Answer.REPLAYED
            assert eager.last.outcome is Answer.EAGER
            assert ours.tolist() == again.tolist() == expected.tolist()


@pytest.mark.parametrize("kind_of_window", ["mistral-sliding", "qwen2-mixed"])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_prompt_much_longer_than_the_window_slides(
    kind_of_window: str, rows: int, device: torch.device, tiny: Make, prompt: Make
) -> None:
    model = tiny(kind_of_window, device)
    with accelerate(model) as fast:
        for seed in range(4):
            inputs = prompt(rows, 70, device, seed=seed)
            assert_same(fast, model, inputs, max_new_tokens=12, eos_token_id=None)


def test_a_penalty_treats_padding_as_this_version_does(tiny: Make, prompt: Make) -> None:
    model = tiny()
    inputs = prompt(2, 12)
    free = model.generate(**inputs, max_new_tokens=1)
    # The padding now holds the id that the row would produce first.
    inputs["input_ids"][1, :2] = free[1, 12]
    with accelerate(model) as fast:
        assert_same(fast, model, inputs, max_new_tokens=12, repetition_penalty=8.0)


def test_an_input_given_as_none_is_not_given(tiny: Make, prompt: Make) -> None:
    model = tiny()
    inputs = {"input_ids": prompt()["input_ids"], "attention_mask": None, "inputs_embeds": None}
    with accelerate(model) as fast:
        assert_same(fast, model, inputs, max_new_tokens=8)
