"""Tools: whatever a model would like to say, the deltas of a call join to JSON of its schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")
pytest.importorskip("openai", reason="needs openai")

import jsonschema_rs
import openai

from serve.openai_schema import OpenAISchema

HELLO: Any = [{"role": "user", "content": "what is the weather?"}]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["place", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "stop", "description": "End it."}},
]


def ask(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": HELLO, "tools": TOOLS, "max_tokens": 600, **more}


def joined(chunks: Any) -> tuple[list[dict[str, str]], str, str | None]:
    """The calls that deltas join to, the text beside them, and the finish reason."""
    calls: list[dict[str, str]] = []
    text, finish = "", None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or ():
                if delta.index == len(calls):
                    assert delta.id
                    calls.append({"name": delta.function.name, "arguments": ""})
                calls[delta.index]["arguments"] += delta.function.arguments or ""
    return calls, text, finish


def test_a_named_tool_is_called_with_arguments_of_its_schema(
    client: openai.OpenAI, schema: OpenAISchema
) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    answer = client.chat.completions.create(**ask(tool_choice=choice))
    schema.check("CreateChatCompletionResponse", answer.to_dict())
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert message.content is None
    assert message.tool_calls is not None
    [call] = message.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    jsonschema_rs.validate(WEATHER, json.loads(call.function.arguments))


@pytest.mark.parametrize("seed", range(3))
def test_streamed_deltas_of_a_required_call_join_to_json(
    client: openai.OpenAI, schema: OpenAISchema, seed: int
) -> None:
    chunks = list(
        client.chat.completions.create(
            stream=True, **ask(tool_choice="required", seed=seed, parallel_tool_calls=False)
        )
    )
    for chunk in chunks:
        schema.check("CreateChatCompletionStreamResponse", chunk.to_dict())
    calls, text, finish = joined(chunks)
    assert finish == "tool_calls"
    assert text == ""
    [call] = calls
    arguments = json.loads(call["arguments"])
    if call["name"] == "weather":
        jsonschema_rs.validate(WEATHER, arguments)
    else:
        assert call["name"] == "stop"
        assert arguments == {}  # it takes none


def test_the_same_seed_calls_the_same_streamed_or_not(client: openai.OpenAI) -> None:
    asked = ask(tool_choice="required", seed=1, parallel_tool_calls=False)
    whole = client.chat.completions.create(**asked).choices[0].message.tool_calls
    assert whole is not None
    calls, _, _ = joined(client.chat.completions.create(stream=True, **asked))
    assert calls == [
        {"name": one.function.name, "arguments": one.function.arguments}
        for one in whole
        if one.type == "function"
    ]


@pytest.mark.parametrize("tokens", [44, 58, 71, 96])
def test_arguments_that_were_cut_off_still_join_to_json(client: openai.OpenAI, tokens: int) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    asked = ask(tool_choice=choice, seed=tokens) | {"max_tokens": tokens}
    calls, _, finish = joined(client.chat.completions.create(stream=True, **asked))
    for call in calls:
        json.loads(call["arguments"])
    assert finish in ("length", "tool_calls")


def test_left_to_itself_the_model_may_talk(client: openai.OpenAI) -> None:
    asked = ask(tool_choice="auto", seed=1) | {"max_tokens": 20}
    answer = client.chat.completions.create(**asked).choices[0]
    assert answer.message.content
    assert answer.message.tool_calls is None
    calls, text, finish = joined(client.chat.completions.create(stream=True, **asked))
    assert (calls, text, finish) == ([], answer.message.content, "length")


def test_with_tool_choice_none_no_tool_is_called(client: openai.OpenAI) -> None:
    asked = ask(tool_choice="none", seed=1) | {"max_tokens": 10}
    assert client.chat.completions.create(**asked).choices[0].message.tool_calls is None


def test_the_result_of_a_call_is_read(client: openai.OpenAI) -> None:
    called: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"place": "Oslo", "days": [true]}'},
            }
        ],
    }
    result: Any = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    asked = ask() | {"messages": [*HELLO, called, result], "max_tokens": 4}
    assert client.chat.completions.create(**asked).choices[0].message.content is not None


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"tools": None, "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "auto",
                        "tools": [{"type": "function", "function": {"name": "no"}}],
                    },
                }
            },
            "tool_choice",
        ),
        (
            {"response_format": {"type": "choice", "choice": ["<tool_call>"]}},
            "response_format.choice",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ],
    ids=str,
)
def test_tools_that_make_no_sense_are_refused(
    client: openai.OpenAI, change: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", body=ask() | change, cast_to=object)
    assert refused.value.param == param


@pytest.mark.parametrize("seed", range(3))
def test_of_the_allowed_tools_one_is_called(client: openai.OpenAI, seed: int) -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "stop"}}]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}
    asked = ask(tool_choice=choice, parallel_tool_calls=False, seed=seed)
    calls, _, finish = joined(client.chat.completions.create(stream=True, **asked))
    assert [call["name"] for call in calls] == ["stop"]
    assert json.loads(calls[0]["arguments"]) == {}
    assert finish == "tool_calls"


def test_log_probabilities_come_beside_calls_too(client: openai.OpenAI) -> None:
    asked = ask(tool_choice="required", seed=2, logprobs=True, parallel_tool_calls=False)
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    assert whole is not None
    assert whole.content
    streamed = [
        entry.token
        for chunk in client.chat.completions.create(stream=True, **asked)
        for choice in chunk.choices
        if choice.logprobs is not None
        for entry in choice.logprobs.content or ()
    ]
    assert streamed == [entry.token for entry in whole.content]
