"""`/v1/completions`, `/v1/models`, `/tokenize`: asked by the official client."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")

import openai

from serve.openai_schema import OpenAISchema
from serve.running import Running, running, wait_for

FREE: dict[str, Any] = {"ignore_eos": True}


def test_an_answer_keeps_to_openais_schema(client: openai.OpenAI, schema: OpenAISchema) -> None:
    answer = client.completions.create(
        model="tiny", prompt="hello", max_tokens=5, temperature=0, extra_body=FREE
    )
    schema.check("CreateCompletionResponse", answer.to_dict())
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens == 5


def test_text_and_ids_of_it_are_the_same_prompt(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "temperature": 0}
    ids = client.post("/../tokenize", body={"prompt": "hello"}, cast_to=dict[str, Any])
    by_text = client.completions.create(prompt="hello", **asked).choices[0].text
    assert client.completions.create(prompt=ids["tokens"], **asked).choices[0].text == by_text


def test_several_prompts_have_several_answers_in_order(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 6,
        "temperature": 0,
        "extra_body": FREE,
    }
    alone = [
        client.completions.create(prompt=text, **asked).choices[0].text for text in ("ab", "xyz")
    ]
    together = client.completions.create(prompt=["ab", "xyz"], n=2, **asked)
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in together.choices]
    assert texts == [alone[0], alone[0], alone[1], alone[1]]
    streamed = ["", "", "", ""]
    for chunk in client.completions.create(prompt=["ab", "xyz"], n=2, stream=True, **asked):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


def test_echo_puts_the_prompt_before_the_answer(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 4, "temperature": 0, "echo": True}
    assert client.completions.create(prompt="hello", **asked).choices[0].text.startswith("hello")
    chunks = client.completions.create(prompt="hello", stream=True, **asked)
    assert "".join(c.choices[0].text for c in chunks).startswith("hello")


def test_logprobs_have_an_entry_for_each_token(client: openai.OpenAI, schema: OpenAISchema) -> None:
    answer = client.completions.create(
        model="tiny", prompt="hello", max_tokens=5, temperature=0, logprobs=2, extra_body=FREE
    )
    schema.check("CreateCompletionResponse", answer.to_dict())
    reported = answer.choices[0].logprobs
    assert reported is not None
    assert reported.tokens is not None
    assert len(reported.tokens) == 5
    assert reported.token_logprobs is not None
    assert all(value <= 0 for value in reported.token_logprobs)
    assert reported.text_offset == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": []}, "no prompt"),
        ({"prompt": [1, "a"]}, "not both"),
        ({"prompt": ""}, "empty prompt"),
        ({"prompt": [5000]}, "vocabulary"),
        ({"prompt": [-1]}, "vocabulary"),
        ({"prompt": ["a"] * 200}, "at most 128"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 4}, "gives all"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"logprobs": 50}, "logprobs"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(
    client: openai.OpenAI, change: dict[str, Any], words: str
) -> None:
    body = {"model": "tiny", "prompt": "hello", **change}
    with pytest.raises(openai.BadRequestError, match=words):
        client.post("/completions", body=body, cast_to=object)


def test_a_refused_prompt_takes_the_others_of_its_request_along(
    client: openai.OpenAI, service: Running
) -> None:
    body = {"model": "tiny", "prompt": [[5], [5000]], "max_tokens": 2000}
    with pytest.raises(openai.BadRequestError):
        client.post("/completions", body=body, cast_to=object)
    wait_for(service.is_clean)


def test_the_model_is_listed_with_its_version(client: openai.OpenAI, schema: OpenAISchema) -> None:
    listed = client.models.with_raw_response.list()
    schema.check("ListModelsResponse", listed.http_response.json())
    [model] = listed.http_response.json()["data"]
    assert model["id"] == "tiny"
    assert model["version"] == "initial"
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_tokenize_and_detokenize_undo_each_other(client: openai.OpenAI) -> None:
    text = "héllo, wörld"
    told = client.post("/../tokenize", body={"prompt": text}, cast_to=dict[str, Any])
    assert told["count"] == len(text.encode())
    back = client.post("/../detokenize", body={"tokens": told["tokens"]}, cast_to=dict[str, Any])
    assert back == {"prompt": text}
    chat = client.post(
        "/../tokenize",
        body={"messages": [{"role": "user", "content": "a"}], "return_token_strs": True},
        cast_to=dict[str, Any],
    )
    assert "".join(chat["token_strs"]) == "<|start|>user\na<|end|>\n<|start|>assistant\n"


@pytest.mark.parametrize("body", [{"tokens": [-1]}, {"tokens": [10**30]}, {"tokens": "x"}, {}])
def test_ids_that_are_none_are_refused(client: openai.OpenAI, body: Any) -> None:
    with pytest.raises(openai.BadRequestError):
        client.post("/../detokenize", body=body, cast_to=object)


def test_ids_are_answered_with_ids_where_there_is_no_tokenizer(
    tiny_chat: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mute"
    shutil.copytree(tiny_chat, folder)
    (folder / "tokenizer.json").unlink()
    body = {"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True, "return_token_ids": True}
    with running(folder) as mute:
        url = f"{mute.url}/v1/completions"
        answer = httpx.post(url, json=body, timeout=120).json()
        assert len(answer["choices"][0]["token_ids"]) == 4
        frames = httpx.post(url, json={**body, "stream": True}, timeout=120).text.splitlines()
        assert len([frame for frame in frames if "token_ids" in frame]) >= 2
        refused = httpx.post(url, json={**body, "prompt": "text"}, timeout=120)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "OST5040"
