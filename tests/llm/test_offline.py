"""`LLM`: answers in the order of their prompts, whatever the form of these."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import ostinato
from llm.small_engine import OPTIONS, Alone, begun, greedy, ids
from ostinato import LLM, SamplingParams
from ostinato.errors import UsageError, WrongTypeError
from ostinato.llm.faults import EngineDown
from ostinato.llm.models import read_config
from ostinato.llm.refusals import QueueFull
from ostinato.llm.request import Request
from ostinato.llm.tokenizer import Tokenizer

WORDS = greedy(8, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(speaking: Path) -> Any:
    with LLM(speaking, **OPTIONS) as made:
        yield made
        made.engine.check_integrity()


@pytest.fixture(scope="module")
def alone(speaking: Path) -> Alone:
    return Alone(speaking)


def words(tokens: Any) -> str:
    return " ".join(f"w{token}" for token in tokens)


def test_texts_ids_and_conversations_are_prompts(llm: LLM, alone: Alone) -> None:
    talk = [{"role": "user", "content": "w5"}, {"role": "assistant", "content": "w6"}]
    outputs = llm.generate(["w5 w9 w7", [5, 9, 7], talk], WORDS)
    assert [output.prompt_ids for output in outputs] == [(5, 9, 7), (5, 9, 7), (5, 9, 6, 9)]
    for output in outputs:
        expected = alone(output.prompt_ids, WORDS, stop_ids=())
        assert list(output.token_ids) == expected
        assert output.text == words(expected)
        assert output.finish_reason == "length"
        assert output.error is None
        assert output.logprobs is None


@pytest.mark.parametrize(
    "prompt", ["w5 w9", [5, 9], [np.int64(5), np.int32(9)], [{"role": "user", "content": "w5"}]]
)
def test_one_prompt_may_come_without_a_list(llm: LLM, prompt: Any) -> None:
    (output,) = llm.generate(prompt, WORDS)
    assert output.prompt_ids == (5, 9)


def test_no_prompts_have_no_answers(llm: LLM) -> None:
    assert llm.generate([], WORDS) == []


def test_each_prompt_may_have_its_own_params(llm: LLM) -> None:
    outputs = llm.generate(["w5", "w6", "w7"], [greedy(n, ignore_eos=True) for n in (1, 4, 2)])
    assert [len(output.token_ids) for output in outputs] == [1, 4, 2]
    with pytest.raises(UsageError, match="3 prompts came with 2 sampling parameters"):
        llm.generate(["w5", "w6", "w7"], [WORDS] * 2)


def test_the_defaults_are_those_of_sampling_params(llm: LLM) -> None:
    (output,) = llm.generate("w5")
    assert len(output.token_ids) <= 16


def test_answers_keep_the_order_of_their_prompts(llm: LLM, alone: Alone) -> None:
    prompts = [ids(1 + at * 7 % 50, at) for at in range(40)]
    params = [greedy(1 + at * 5 % 13, ignore_eos=True) for at in range(40)]
    told: list[tuple[int, int]] = []
    outputs = llm.generate(prompts, params, progress=lambda done, of: told.append((done, of)))
    assert [output.prompt_ids for output in outputs] == [tuple(prompt) for prompt in prompts]
    for prompt, wanted, output in zip(prompts, params, outputs, strict=True):
        assert list(output.token_ids) == alone(prompt, wanted, stop_ids=())
    assert told == [(at + 1, 40) for at in range(40)]


def test_a_stop_text_is_cut_from_the_answer_and_ends_it(llm: LLM, alone: Alone) -> None:
    whole = alone([5, 9, 7], greedy(20), stop_ids=())
    stop = words(whole[6:8])
    at = words(whole).index(stop)
    (output,) = llm.generate([5, 9, 7], greedy(20, ignore_eos=True, stop=[stop, "never"]))
    assert output.text == words(whole)[:at]
    assert output.finish_reason == "stop"
    assert list(output.token_ids) == whole[:8]
    assert sum(llm.engine.counts().failures.values()) == 0


def test_a_stop_text_ends_a_stream_without_a_letter_of_it(llm: LLM, alone: Alone) -> None:
    whole = alone([5, 9, 7], greedy(20), stop_ids=())
    params = greedy(20, ignore_eos=True, stop=words(whole[6:8]))
    deltas = list(llm.engine.ask([5, 9, 7], params))
    assert "".join(d.text for d in deltas) == words(whole[:6]) + " "
    assert sum((d.token_ids for d in deltas), ()) == tuple(whole[:8])


def test_a_stop_token_ends_the_answer_and_is_no_part_of_its_text(llm: LLM, alone: Alone) -> None:
    whole = alone([5, 9, 7], greedy(20), stop_ids=())
    at = whole.index(whole[5])
    params = greedy(20, ignore_eos=True, stop_token_ids=[whole[5]])
    (output,) = llm.generate([5, 9, 7], params)
    assert output.finish_reason == "stop"
    assert list(output.token_ids) == whole[: at + 1]
    assert output.text == words(whole[:at])


def test_the_model_s_own_end_is_ignored_on_request(llm: LLM) -> None:
    biased = {"logit_bias": {2: 100.0}}  # the end of text, made certain
    (short,) = llm.generate("w5", greedy(5, **biased))
    (later,) = llm.generate("w5", greedy(5, min_tokens=3, **biased))
    (whole,) = llm.generate("w5", greedy(5, ignore_eos=True, **biased))
    assert (short.token_ids, short.finish_reason) == ((2,), "stop")
    assert (len(later.token_ids), later.finish_reason) == (4, "stop")
    assert (whole.token_ids, whole.finish_reason) == ((2,) * 5, "length")


def test_more_ends_of_text_are_read_from_the_generation_config(
    speaking: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    for file in speaking.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 33]}))
    with LLM(folder, **OPTIONS) as made:
        (output,) = made.generate("w5", greedy(5, logit_bias={33: 100.0}))
    assert (output.token_ids, output.finish_reason) == ((33,), "stop")


def test_log_probabilities_stand_beside_each_token(llm: LLM) -> None:
    outputs = llm.generate(["w5", "w6"], [greedy(6, ignore_eos=True, logprobs=2), WORDS])
    assert outputs[1].logprobs is None
    reported = outputs[0].logprobs
    assert reported is not None
    assert len(reported) == 6
    for token, one in zip(outputs[0].token_ids, reported, strict=True):
        assert one.top[0] == (token, one.chosen)
        assert len(one.top) == 2
        assert one.top[1][1] <= one.chosen < 0


def test_several_answers_are_the_choices_and_the_text_is_the_first_one_s(llm: LLM) -> None:
    (output,) = llm.generate("w5 w9", SamplingParams(max_tokens=6, n=3, seed=1, ignore_eos=True))
    assert [choice.index for choice in output.choices] == [0, 1, 2]
    assert output.text == output.choices[0].text == words(output.token_ids)
    assert len({choice.text for choice in output.choices}) == 3


def test_a_prompt_of_one_token_and_an_answer_of_one_token(llm: LLM) -> None:
    (output,) = llm.generate([7], greedy(1, ignore_eos=True))
    assert len(output.token_ids) == 1
    assert output.metrics.tpot_s is None


def test_a_cached_prefix_is_reported(llm: LLM) -> None:
    prompt = ids(50, 99)
    first, second = (llm.generate(prompt, WORDS)[0] for _ in range(2))
    assert (first.metrics.cached_tokens, second.metrics.cached_tokens) == (0, 48)
    assert first.token_ids == second.token_ids
    assert llm.generate(prompt, WORDS, salt="mine")[0].metrics.cached_tokens == 0


def test_more_prompts_than_may_wait_are_all_answered(speaking: Path) -> None:
    with LLM(speaking, **OPTIONS, max_waiting=3) as made:
        outputs = made.generate([[5, at] for at in range(3, 40)], WORDS)
        assert [output.prompt_ids[1] for output in outputs] == list(range(3, 40))
        with pytest.raises(UsageError, match="max_waiting lets 3"):
            made.generate("w5", SamplingParams(n=5))


@pytest.mark.parametrize(
    ("prompt", "wanted", "problem"),
    [
        ([], WORDS, "prompt is empty"),
        ([5] * 256, WORDS, "256 tokens and at most 255 fit"),
        ([5, 10**6], WORDS, "names token 1000000"),
        ([5, "w5"], WORDS, "a prompt is a text"),
        ([{"user": "hi"}], WORDS, 'has no text under "role"'),
        ("w5", greedy(3, stop_token_ids=[10**6]), "names token 1000000"),
        ("w5", greedy(3, logprobs=9), "9 log probabilities"),
    ],
)
def test_a_prompt_that_is_refused_is_told_with_its_place_before_any_is_begun(
    prompt: Any, wanted: SamplingParams, problem: str, llm: LLM
) -> None:
    before = begun(llm)
    with pytest.raises(UsageError, match=problem) as caught:
        llm.generate([[5] * 9, prompt], [WORDS, wanted])
    assert str(caught.value.args[0]).startswith("prompts[1]: ")
    assert begun(llm) == before
    assert llm.generate("w5", WORDS)[0].finish_reason == "length"


def test_a_device_fault_is_raised_and_not_only_reported(speaking: Path) -> None:
    with LLM(speaking, **OPTIONS) as made:
        resident: Any = made.engine._core.resident

        def fail(steps: int) -> None:
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")

        resident.launch = fail
        with pytest.raises(EngineDown, match="unspecified launch failure"):
            made.generate("w5", WORDS)


def test_a_misspelt_option_is_an_error_with_the_right_name(speaking: Path) -> None:
    with pytest.raises(UsageError) as caught:
        LLM(speaking, max_bach=3)
    assert caught.value.code == "OST5030"
    assert "max_batch" in caught.value.remedy


def test_dummy_weights_need_a_config_alone(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dummy"
    folder.mkdir()
    (folder / "config.json").write_bytes((tiny / "config.json").read_bytes())
    answers = []
    for model in (folder, read_config(folder)):
        with LLM(model, load="dummy", **OPTIONS) as made:
            answers.append(made.generate([5, 6, 7], WORDS)[0].token_ids)
            with pytest.raises(UsageError, match="the model has no tokenizer"):
                made.generate("a text", WORDS)
    assert answers[0] == answers[1]
    assert len(answers[0]) == 8


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ({"role": "user"}, '"content"'),
        ({"content": "hi"}, '"role"'),
        ({"role": 5}, '"role"'),
        ({"role": "user", "content": None}, '"content"'),
        ({"role": "user", "content": 5}, '"content"'),
        ({"role": "user", "content": [{"type": "image_url"}]}, '"content"'),
        ({"role": "user", "content": ["hi"]}, '"content"'),
    ],
)
def test_a_message_without_its_parts_is_refused_and_not_taken_for_an_empty_one(
    message: dict[str, Any], missing: str, llm: LLM
) -> None:
    first = {"role": "user", "content": "hi"}
    with pytest.raises(UsageError, match=f"message 2 of the conversation has no .*{missing}"):
        llm.generate([[first, message]])
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
    assert llm.generate([[first, called, first]], SamplingParams(max_tokens=1))[0].token_ids


def test_content_in_parts_is_the_text_that_they_make() -> None:
    echo = Tokenizer(
        tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 1, "b": 2, "?": 0}, unk_token="?")),
        "{{ messages[0].content }}",
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]
    assert echo.encode_chat([{"role": "user", "content": parts}]) == [1]


def test_a_conversation_that_the_template_refuses_is_told_with_its_roles() -> None:
    strict = Tokenizer(
        tokenizers.Tokenizer(tokenizers.models.BPE()),
        "{{ raise_exception('roles must alternate') }}",
    )
    with pytest.raises(UsageError, match="conversation: roles must alternate") as caught:
        strict.encode_chat([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    assert caught.value.code == "OST2030"
    assert caught.value.remedy.endswith("these are of 'user, user'")


def test_a_model_without_a_chat_template_takes_no_conversation(
    speaking: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    for file in speaking.iterdir():
        if file.name != "tokenizer_config.json":
            (folder / file.name).write_bytes(file.read_bytes())
    with LLM(folder, **OPTIONS) as made, pytest.raises(UsageError) as caught:
        made.generate([{"role": "user", "content": "w5"}])
    assert caught.value.code == "OST5041"


def test_the_engine_s_names_are_public() -> None:
    assert ostinato.LLM is LLM
    assert ostinato.llm.LLM is LLM
    assert ostinato.llm.SamplingParams is SamplingParams
    for name in ostinato.llm.__all__:
        assert getattr(ostinato.llm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        ostinato.llm.Motor  # noqa: B018


@pytest.mark.parametrize(
    "prompts",
    [None, 5, b"w5", {"w5"}, {"role": "user", "content": "w5"}, [{"role": "user"}, "w5"]],
)
def test_what_is_no_prompt_is_refused_as_a_whole(llm: LLM, prompts: Any) -> None:
    with pytest.raises(WrongTypeError, match="a prompt is a text") as caught:
        llm.generate(prompts, WORDS)
    assert caught.value.code == "OST5042"


@pytest.mark.parametrize(
    "params", [{"max_tokens": 5}, {}, 5, 0, False, "", [None], iter([WORDS]), [{"max_tokens": 5}]]
)
def test_params_of_the_wrong_type_never_mean_the_defaults(llm: LLM, params: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"SamplingParams\.read") as caught:
        llm.generate("w5", params)
    assert caught.value.code == "OST5046"


def test_a_progress_that_cannot_be_called_is_refused_before_anything_is_asked(llm: LLM) -> None:
    with pytest.raises(WrongTypeError, match="progress"):
        llm.generate([], WORDS, progress=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1025, 10**8, 2**62])
def test_more_answers_than_may_ever_wait_are_refused_before_one_is_built(llm: LLM, n: int) -> None:
    with pytest.raises(UsageError, match=rf"n asks for {n} .* max_waiting lets 1024") as caught:
        llm.generate(["w5", "w6"], [WORDS, greedy(1, n=n)])
    assert caught.value.code == "OST5047"
    assert not isinstance(caught.value, QueueFull)
    with pytest.raises(UsageError, match="max_waiting"):
        replace(llm.engine._door, max_waiting=1024).replies(
            Request("many", (5,), greedy(1, n=n)), count=0
        )


@pytest.mark.parametrize("prompt", ["w5 \ud800", [{"role": "user", "content": "w5 \ud800"}]])
def test_half_a_character_in_a_prompt_is_refused(llm: LLM, prompt: Any) -> None:
    with pytest.raises(UsageError, match="half a character") as caught:
        llm.generate(prompt, WORDS)
    assert caught.value.code == "OST5042"


@pytest.mark.parametrize(
    "beside", [{"salt": None}, {"salt": b"x"}, {"priority": "high"}, {"priority": None}]
)
def test_a_refused_request_leaves_nothing_behind(llm: LLM, beside: dict[str, Any]) -> None:
    with pytest.raises(WrongTypeError):
        llm.generate("w5", WORDS, **beside)
    assert not llm.engine.health().living


def test_a_salt_of_half_a_character_is_as_good_as_any(llm: LLM, alone: Alone) -> None:
    (output,) = llm.generate([[5, 9]], WORDS, salt="\ud800")
    assert list(output.token_ids) == alone((5, 9), WORDS, stop_ids=())
