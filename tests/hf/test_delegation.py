"""What the static step does not serve is answered by the model's own `generate`, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    FalconConfig,
    FalconForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    MambaConfig,
    MambaForCausalLM,
    StoppingCriteria,
)

from ostinato.hf import Answer, Delegated, accelerate
from ostinato.hf.delegation import Delegation
from ostinato.hf.probe import study

Make = Callable[..., Any]


class Shift(LogitsProcessor):
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.roll(1, dims=-1)


class AfterThree(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] >= 12)


REQUESTS: list[tuple[Delegated, dict[str, Any]]] = [
    (Delegated.SEARCH_MODE, {"num_beams": 3}),
    (Delegated.CUSTOM_PROCESSOR, {"logits_processor": [Shift()]}),
    (Delegated.CUSTOM_PROCESSOR, {"no_repeat_ngram_size": 2}),
    (Delegated.CUSTOM_PROCESSOR, {"bad_words_ids": [[5], [6, 7]]}),
    (Delegated.CUSTOM_PROCESSOR, {"prefix_allowed_tokens_fn": lambda _, ids: list(range(3, 50))}),
    (Delegated.CUSTOM_STOPPING, {"stopping_criteria": [AfterThree()]}),
    (Delegated.CUSTOM_STOPPING, {"max_time": 60.0}),
    (Delegated.ASSISTED, {"prompt_lookup_num_tokens": 3}),
    (Delegated.UNSUPPORTED_OPTION, {"use_cache": False}),
    # Values of unusual types, which transformers takes in its own way.
    (Delegated.UNSUPPORTED_OPTION, {"max_new_tokens": 2.5}),
    (Delegated.UNSUPPORTED_OPTION, {"max_new_tokens": np.float32(2.5)}),
    (Delegated.UNSUPPORTED_OPTION, {"max_new_tokens": torch.tensor(2.5)}),
    (Delegated.UNSUPPORTED_OPTION, {"max_new_tokens": None, "max_length": 11.5}),
    (Delegated.UNSUPPORTED_OPTION, {"do_sample": 1}),
    (Delegated.UNSUPPORTED_OPTION, {"do_sample": np.True_}),
    (Delegated.UNSUPPORTED_OPTION, {"suppress_tokens": [5.5, 46]}),
]


@pytest.mark.parametrize(("reason", "options"), REQUESTS, ids=lambda value: str(value)[:40])
def test_a_request_out_of_reach_is_the_models_own(
    reason: Delegated, options: dict[str, Any], tiny: Make, prompt: Make
) -> None:
    model = tiny()
    with accelerate(model) as fast:
        options = {"max_new_tokens": 9, **options}
        torch.manual_seed(4)
        ours = fast.generate(**prompt(1, 9), **options)
        assert (fast.last.outcome, fast.last.reason) == (Answer.DELEGATED, reason)
        assert fast.last.detail
        assert fast.report().delegated == {str(reason): 1}
    torch.manual_seed(4)
    assert ours.tolist() == model.generate(**prompt(1, 9), **options).tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"suppress_tokens": [True]},
        {"begin_suppress_tokens": [False]},
        {"max_new_tokens": torch.tensor([5])},
        {"logits_processor": 0},
        {"stopping_criteria": 0},
    ],
    ids=str,
)
def test_what_transformers_refuses_is_refused_in_its_words(
    options: dict[str, Any], tiny: Make, prompt: Make
) -> None:
    model = tiny()
    errors = []
    for generate in (model.generate, accelerate(model).generate):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            generate(**prompt(1, 9), **{"max_new_tokens": 9, **options})
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


WRONG: list[dict[str, Any]] = [
    {"generation_config": 3},
    {"generation_config": "greedy"},
    {"generation_config": {"max_new_tokens": 3}},
    {"max_new_tokens": "5"},
    {"max_new_tokens": -1},
    {"max_length": "12", "max_new_tokens": None},
    {"do_sample": True, "temperature": -1.0},
    {"do_sample": True, "temperature": "hot"},
    {"do_sample": True, "top_k": 2.5},
    {"do_sample": True, "top_p": 2.0},
    {"do_sample": True, "min_p": 3.0},
    {"do_sample": True, "num_return_sequences": 2.0},
    {"eos_token_id": "x"},
    {"pad_token_id": [1, 2]},
    {"repetition_penalty": "much"},
    {"cache_implementation": "none of these"},
    {"suppress_tokens": 5},
    {"bad_words_ids": 5},
    {"watermarking_config": 3},
    {"compile_config": 3},
    {"input_ids": None},
    {"input_ids": [[1, 2]]},
    {"input_ids": torch.tensor([[500]])},
    {"attention_mask": torch.ones(1, 4)},
]


def outcome(generate: Callable[..., Any], request: dict[str, Any]) -> Any:
    torch.manual_seed(4)
    try:
        return generate(**request).tolist()
    except Exception as error:  # noqa: BLE001 - whatever transformers raises
        return type(error), str(error)


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_a_wrong_value_does_what_it_does_in_transformers_and_last_tells_of_no_other_call(
    options: dict[str, Any], tiny: Make, prompt: Make
) -> None:
    model = tiny()
    request = {**prompt(1, 9), "max_new_tokens": 4, **options}
    with accelerate(model) as fast:
        fast.generate(**prompt(1, 9), max_new_tokens=2)
        ours = outcome(fast.generate, request)
        assert ours == outcome(model.generate, request)
        if isinstance(ours, tuple):
            assert fast.last.outcome is Answer.DELEGATED
            assert fast.last.reason in (Delegated.INVALID_REQUEST, Delegated.UNSUPPORTED_OPTION)
            assert fast.last.detail


def test_an_answer_that_breaks_off_leaves_nothing_told_of_the_one_before(
    tiny: Make, prompt: Make
) -> None:
    class Broken:
        def put(self, tokens: torch.Tensor) -> None:
            raise OSError("the pipe is closed")

    with accelerate(tiny()) as fast:
        assert fast.last is None
        fast.generate(**prompt(1, 9), max_new_tokens=3)
        assert fast.last.outcome is Answer.REPLAYED
        with pytest.raises(OSError, match="the pipe is closed"):
            fast.generate(**prompt(1, 9), max_new_tokens=3, streamer=Broken())
        assert fast.last is None
        fast.generate(**prompt(1, 9), max_new_tokens=3)
        assert fast.last.outcome is Answer.REPLAYED


@pytest.mark.parametrize("number", [np.int64(5), np.uint8(5), True], ids=repr)
def test_whole_numbers_of_any_type_are_served(number: Any, tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        ours = fast.generate(**prompt(1, 9), max_new_tokens=number)
        assert fast.last.outcome is not Answer.DELEGATED
    assert ours.tolist() == model.generate(**prompt(1, 9), max_new_tokens=number).tolist()


def test_structured_output_is_the_models_own(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny()) as fast:
        result = fast.generate(
            **prompt(), max_new_tokens=4, return_dict_in_generate=True, output_scores=True
        )
        assert fast.last.reason is Delegated.STRUCTURED_OUTPUT
    assert len(result.scores) == 4


def test_embeddings_are_the_models_own(tiny: Make, prompt: Make) -> None:
    model = tiny()
    embedded = model.get_input_embeddings()(prompt()["input_ids"])
    with accelerate(model) as fast:
        result = fast.generate(inputs_embeds=embedded, max_new_tokens=4)
        assert fast.last.reason is Delegated.EMBEDDINGS_GIVEN
    assert result.shape == (1, 4)


def test_padding_on_the_right_is_the_models_own(tiny: Make, prompt: Make) -> None:
    model = tiny()
    ids = prompt(2, 9)["input_ids"]
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    with accelerate(model) as fast:
        ours = fast.generate(ids, attention_mask=mask, max_new_tokens=6)
        assert fast.last.reason is Delegated.UNSUPPORTED_OPTION
        assert "left" in fast.last.detail
    assert ours.tolist() == model.generate(ids, attention_mask=mask, max_new_tokens=6).tolist()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_new_tokens": 4, "no_such_option": 3}, ValueError),
        ({"max_length": 4}, ValueError),
        ({"max_new_tokens": 4, "do_sample": True, "temperature": 0.0}, ValueError),
        ({"max_new_tokens": 4, "num_return_sequences": 2}, ValueError),
    ],
    ids=str,
)
def test_a_wrong_request_raises_the_models_own_error(
    options: dict[str, Any], error: type[Exception], tiny: Make, prompt: Make
) -> None:
    model = tiny()
    with pytest.raises(error) as theirs:
        model.generate(**prompt(), **options)
    with accelerate(model) as fast, pytest.raises(error) as ours:
        fast.generate(**prompt(), **options)
    assert str(ours.value) == str(theirs.value)


def test_a_request_longer_than_a_fixed_cache_is_the_models_own(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny(), max_cache_len=32) as fast:
        fast.generate(**prompt(1, 9), max_new_tokens=23)
        assert fast.last.outcome is not Answer.DELEGATED
        fast.generate(**prompt(1, 9), max_new_tokens=25)
        assert fast.last.reason is Delegated.LONGER_THAN_CACHE


def test_a_fixed_cache_too_short_for_the_bucket_still_holds_the_prompt(
    tiny: Make, prompt: Make
) -> None:
    model = tiny()
    with accelerate(model, max_cache_len=12) as fast:
        ours = fast.generate(**prompt(1, 9), max_new_tokens=4)
        assert fast.last.outcome is not Answer.DELEGATED
    assert ours.tolist() == model.generate(**prompt(1, 9), max_new_tokens=4).tolist()


def test_learned_positions_end_where_they_end(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny("gpt2")) as fast:
        with pytest.raises(IndexError):
            fast.generate(**prompt(1, 500), max_new_tokens=30, eos_token_id=None)
        assert fast.last.reason is Delegated.LONGER_THAN_POSITIONS


def test_rotary_embeddings_that_change_with_length_are_the_models_own(prompt: Make) -> None:
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, pad_token_id=0,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    )  # fmt: skip
    with accelerate(LlamaForCausalLM(config).eval()) as fast:
        fast.generate(**prompt(), max_new_tokens=4)
        assert fast.last.reason is Delegated.LENGTH_DEPENDENT_ROPE


def test_an_encoder_decoder_is_its_own(prompt: Make) -> None:
    config = BartConfig(
        vocab_size=97, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
    )  # fmt: skip
    with accelerate(BartForConditionalGeneration(config).eval()) as fast:
        assert fast.generate(**prompt(), max_new_tokens=4).shape[0] == 1
        assert fast.last.reason in (Delegated.ENCODER_DECODER, Delegated.OWN_GENERATE)


def test_under_autocast_a_request_is_the_models_own(tiny: Make, prompt: Make) -> None:
    model = tiny()
    with accelerate(model) as fast:
        with torch.autocast("cpu", torch.bfloat16):
            ours = fast.generate(**prompt(2), max_new_tokens=9)
            assert fast.last.reason is Delegated.AUTOCAST_ON
            assert "bfloat16" in fast.last.detail
            theirs = model.generate(**prompt(2), max_new_tokens=9)
        assert ours.tolist() == theirs.tolist()
        fast.generate(**prompt(2), max_new_tokens=9)
        assert fast.last.outcome is not Answer.DELEGATED


@pytest.mark.parametrize("length", [10**9, 10**30])
def test_a_cache_that_memory_does_not_hold_is_the_models_own(
    length: int, tiny: Make, prompt: Make
) -> None:
    model = tiny()
    with accelerate(model, max_cache_len=length) as fast:
        ours = fast.generate(**prompt(), max_new_tokens=9)
        assert fast.last.reason is Delegated.CACHE_OVER_MEMORY
        assert f"1 x {length} columns take " in fast.last.detail
        assert fast.last.detail.endswith(" are free")
    assert ours.tolist() == model.generate(**prompt(), max_new_tokens=9).tolist()


def test_a_request_that_memory_does_not_hold_leaves_the_cache_for_others(
    tiny: Make, prompt: Make
) -> None:
    model = tiny()
    with accelerate(model) as fast:
        first = int(fast.generate(**prompt(), max_new_tokens=9)[0, 9])
        session = fast._sessions[1]
        ours = fast.generate(**prompt(), max_new_tokens=10**9, eos_token_id=first)
        assert fast.last.reason is Delegated.CACHE_OVER_MEMORY
        assert ours.shape == (1, 10)
        assert fast._sessions[1] is session


def test_an_allocator_that_finds_no_room_after_all_is_the_models_own(
    tiny: Make, prompt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.hf.room.free_bytes", lambda _: 1 << 80)
    with accelerate(tiny(), max_cache_len=10**15) as fast:
        fast.generate(**prompt(), max_new_tokens=9)
        assert fast.last.reason is Delegated.CACHE_OVER_MEMORY
        assert "allocate memory" in fast.last.detail


def test_a_state_space_model_is_its_own(prompt: Make) -> None:
    config = MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=1, state_size=4)
    with accelerate(MambaForCausalLM(config).eval()) as fast:
        fast.generate(prompt()["input_ids"], max_new_tokens=4)
        assert fast.last.outcome is Answer.DELEGATED


def test_a_model_with_its_own_generate_keeps_it(prompt: Make, tiny: Make) -> None:
    model = tiny()

    def generate(*_: Any, **__: Any) -> str:
        return "mine"

    model.generate = generate
    with accelerate(model) as fast:
        assert fast.generate(**prompt()) == "mine"
        assert fast.last.reason is Delegated.OWN_GENERATE


def test_a_forward_that_ignores_positions_is_found_out(prompt: Make, tiny: Make) -> None:
    model = tiny()
    inner = model.model.rotary_emb.forward

    def from_zero(x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        return inner(x, torch.zeros_like(position_ids))

    plain = model.model.rotary_emb
    plain.forward = lambda x, position_ids: (
        from_zero(x, position_ids) if x.shape[1] == 1 else inner(x, position_ids)
    )
    with accelerate(model) as fast:
        fast.generate(**prompt(), max_new_tokens=4)
        assert fast.last.reason is Delegated.STATIC_STEP_DISAGREES
        assert "rounding" in fast.last.detail


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"do_sample": True, "top_k": 3}])
def test_a_forward_that_fails_in_a_static_step_leaves_the_answer_to_the_model(
    options: dict[str, Any],
) -> None:
    config = FalconConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=97,
        bos_token_id=1,
        eos_token_id=2,
        alibi=True,
    )
    model = FalconForCausalLM(config).eval()
    ids = torch.tensor([[5, 6, 7]])
    torch.manual_seed(1)
    wanted = model.generate(ids, max_new_tokens=5, **options)
    with accelerate(model) as fast:
        torch.manual_seed(1)
        assert torch.equal(fast.generate(ids, max_new_tokens=5, **options), wanted)
        assert fast.last.reason is Delegated.STATIC_STEP_FAILS
        assert "FalconForCausalLM.forward raised ValueError" in fast.last.detail


class Bare(LlamaForCausalLM):
    def forward(self, input_ids: Any = None, attention_mask: Any = None, **kwargs: Any) -> Any:
        kwargs.pop("position_ids", None)
        return super().forward(input_ids, attention_mask, **kwargs)


def spread(model: Any) -> None:
    model.hf_device_map = {"model.layers.0": "cpu", "model.layers.1": "disk"}


def of_another_kind(model: Any) -> None:
    model.config.layer_types = ["full_attention", "a kind of its own"]


def of_no_cache(model: Any) -> None:
    model._is_stateful = True


def bare(model: Any) -> None:
    model.__class__ = Bare


@pytest.mark.parametrize(
    ("change", "reason", "told"),
    [
        (bare, Delegated.FORWARD_SIGNATURE, "Bare.forward takes no position_ids"),
        (spread, Delegated.SPREAD_OVER_DEVICES, "spread over cpu, disk"),
        (of_another_kind, Delegated.ATTENTION_KIND, "llama has layers of other kinds"),
        (of_no_cache, Delegated.CACHE_KIND, "llama keeps a state"),
        (
            lambda model: setattr(model.config, "_attn_implementation_internal", "flex_attention"),
            Delegated.ATTENTION_KIND,
            "attention is 'flex_attention'",
        ),
    ],
    ids=["forward", "devices", "layers", "state", "attention"],
)
def test_a_model_that_no_static_step_can_drive_says_why(
    change: Callable[[Any], None], reason: Delegated, told: str, tiny: Make
) -> None:
    model = tiny()
    change(model)
    found = study(model, torch.device("cpu"))
    assert isinstance(found, Delegation)
    assert found.reason is reason
    assert told in found.detail


def test_a_model_without_positions_is_answered_by_its_own_generate(
    tiny: Make, prompt: Make
) -> None:
    model = tiny()
    bare(model)
    with accelerate(model) as fast:
        ours = fast.generate(**prompt(1, 9), max_new_tokens=4)
        assert (fast.last.outcome, fast.last.reason) == (
            Answer.DELEGATED, Delegated.FORWARD_SIGNATURE
        )  # fmt: skip
    assert ours.tolist() == model.generate(**prompt(1, 9), max_new_tokens=4).tolist()
