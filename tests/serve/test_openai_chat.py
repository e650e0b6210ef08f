"""`/v1/chat/completions`, asked by the official client; its replies keep to OpenAI's schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")

import openai

from serve.openai_schema import OpenAISchema
from serve.running import Running, wait_for

HELLO: Any = [{"role": "user", "content": "hello"}]
FREE: dict[str, Any] = {"ignore_eos": True}


def test_an_answer_keeps_to_openais_schema(client: openai.OpenAI, schema: OpenAISchema) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model="tiny", messages=HELLO, max_tokens=5, temperature=0, extra_body=FREE
    )
    schema.check("CreateChatCompletionResponse", json.loads(answer.content))
    parsed = answer.parse()
    assert parsed.choices[0].finish_reason == "length"
    assert parsed.usage is not None
    assert parsed.usage.completion_tokens == 5
    assert parsed.usage.total_tokens == parsed.usage.prompt_tokens + 5


def test_a_stream_says_what_the_whole_answer_says(
    client: openai.OpenAI, schema: OpenAISchema
) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": HELLO,
        "max_tokens": 30,
        "seed": 7,
        "extra_body": FREE,
    }
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked)
    )
    for chunk in chunks:
        schema.check("CreateChatCompletionStreamResponse", chunk.to_dict())
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 30
    assert len({chunk.id for chunk in chunks}) == 1


def test_cached_tokens_of_a_prompt_count_once_however_many_answers_it_has(
    client: openai.OpenAI,
) -> None:
    words = [{"role": "user", "content": "as long as three pages of sixteen tokens " * 2}]
    asked: dict[str, Any] = {"model": "tiny", "messages": words, "max_tokens": 2, "n": 3}
    for _ in range(2):  # the second time, the prompt itself was found
        usage = client.chat.completions.create(**asked).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens is not None
        assert usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert usage.prompt_tokens_details.cached_tokens > 0


def test_without_include_usage_no_chunk_speaks_of_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=3, stream=True)
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


def test_n_answers_come_side_by_side_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": HELLO,
        "max_tokens": 12,
        "n": 3,
        "seed": 5,
        "extra_body": FREE,
    }
    whole = client.chat.completions.create(**asked)
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(stream=True, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 36


def test_a_stop_text_ends_the_answer_and_is_not_in_it(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": HELLO,
        "max_tokens": 40,
        "seed": 3,
        "extra_body": FREE,
    }
    free = client.chat.completions.create(**asked).choices[0].message.content
    assert free is not None
    stop = free[10:12]
    stopped = client.chat.completions.create(stop=[stop], **asked)
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == free[: free.index(stop)]


def test_logit_bias_decides_the_token(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        max_tokens=4,
        temperature=0,
        logit_bias={"65": 100},
        extra_body=FREE,
    )
    text = answer.choices[0].message.content
    assert text is not None
    assert len(set(text)) == 1


def test_logprobs_stand_beside_each_token(client: openai.OpenAI, schema: OpenAISchema) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": HELLO,
        "max_tokens": 6,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 2,
        "extra_body": FREE,
    }
    answer = client.chat.completions.create(**asked)
    schema.check("CreateChatCompletionResponse", answer.to_dict())
    reported = answer.choices[0].logprobs
    assert reported is not None
    assert reported.content is not None
    assert len(reported.content) == 6
    for entry in reported.content:
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
        assert entry.bytes is not None
        assert len(entry.bytes) == 1  # this model writes byte by byte, whole characters or not
    streamed = [
        entry
        for chunk in client.chat.completions.create(stream=True, **asked)
        for choice in chunk.choices
        if choice.logprobs is not None
        for entry in choice.logprobs.content or ()
    ]
    assert [one.logprob for one in streamed] == pytest.approx(
        [one.logprob for one in reported.content]
    )


def test_json_schema_and_json_object_are_kept(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        max_tokens=200,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": schema, "strict": True},
        },
    )
    said = json.loads(answer.choices[0].message.content or "")
    assert said["a"] in (1, 2)
    assert isinstance(said["b"], bool)


def test_a_schema_without_a_grammar_is_refused_before_anything_is_sent(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            stream=True,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "nonsense"}},
            },
        )
    assert refused.value.code == "OST5001" or str(refused.value.code).startswith("OST50")


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"temperature": -1}, "temperature", "must be from 0 to 2, got -1; send"),
        ({"temperature": 2.5}, "temperature", "from 0 to 2, got 2.5"),
        ({"top_p": -1}, "top_p", "must be from 0 to 1, got -1; send"),
        ({"temperature": "hot"}, "temperature", "must be a number, got a text"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"n": 1000}, "n", "at most"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs"),
        ({"temprature": 1}, "temprature", "unknown field"),
        ({"messages": []}, "messages", "at least 1 item;"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "wizard"),
        ({"audio": {"voice": "a"}}, "audio", "sound"),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"logit_bias": {"word": 1}}, "logit_bias", "token ids"),
        ({"model": "gpt-17"}, "model", "no model"),
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_by_its_name(
    client: openai.OpenAI, change: dict[str, Any], param: str, words: str
) -> None:
    body = {"model": "tiny", "messages": HELLO, **change}
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as refused:
        client.post("/chat/completions", body=body, cast_to=object)
    assert refused.value.param == param
    assert words in str(refused.value)


def test_a_prompt_that_is_too_long_is_told_in_openais_word(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "x" * 5000}]
        )
    assert refused.value.code == "context_length_exceeded"


def test_an_image_is_refused_and_text_parts_are_joined(client: openai.OpenAI) -> None:
    parts: Any = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "temperature": 0}
    joined = client.chat.completions.create(messages=[{"role": "user", "content": parts}], **asked)
    plain = client.chat.completions.create(messages=HELLO, **asked)
    assert joined.choices[0].message.content == plain.choices[0].message.content
    image: Any = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    with pytest.raises(openai.BadRequestError, match="image_url"):
        client.chat.completions.create(messages=[{"role": "user", "content": image}], **asked)


def test_nothing_is_left_of_all_that(service: Running) -> None:
    wait_for(service.is_clean)


def test_a_schema_that_is_nested_too_deeply_is_the_client_s_error(client: openai.OpenAI) -> None:
    pytest.importorskip("llguidance")
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    form = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "hello"}], "response_format": form}
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", body=body | {"model": "tiny"}, cast_to=object)
    assert refused.value.code == "OST5062"
