"""`/v1/responses`, for text: asked by the official client."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("openai", reason="needs openai")
pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")

import openai

from serve.openai_schema import OpenAISchema

ASKED: dict[str, Any] = {"model": "tiny", "input": "hello", "max_output_tokens": 16}


def test_an_answer_keeps_to_openais_schema(client: openai.OpenAI, schema: OpenAISchema) -> None:
    answer = client.responses.create(temperature=0, **ASKED)
    schema.check("Response", answer.to_dict())
    assert answer.output_text
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage is not None
    assert answer.usage.output_tokens == 16


def test_events_come_in_order_and_say_what_the_whole_answer_says(
    client: openai.OpenAI, schema: OpenAISchema
) -> None:
    whole = client.responses.create(temperature=0, **ASKED)
    events = list(client.responses.create(temperature=0, stream=True, **ASKED))
    for event in events:
        schema.check("ResponseStreamEvent", event.to_dict())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert said == whole.output_text


def test_instructions_and_messages_are_a_conversation(client: openai.OpenAI) -> None:
    messages: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "go on"},
    ]
    answer = client.responses.create(
        model="tiny", input=messages, instructions="be brief", max_output_tokens=16
    )
    assert answer.instructions == "be brief"
    assert answer.usage is not None
    assert answer.usage.input_tokens > 50


@pytest.mark.parametrize(
    "change",
    [
        {"tools": [{"type": "web_search"}]},
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"input": []},
        {"input": [{"type": "function_call_output", "role": "user", "content": "x"}]},
        {"max_output_tokens": 0},
    ],
    ids=str,
)
def test_what_is_not_done_here_is_refused(client: openai.OpenAI, change: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError):
        client.post("/responses", body=ASKED | change, cast_to=object)
