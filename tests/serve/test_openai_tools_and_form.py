"""Tools beside `response_format`: an answer is calls, or text that keeps to the form.

What the tiny model would like to say is random; a bias on the first letter chooses the branch.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs")
pytest.importorskip("openai", reason="needs openai")

import jsonschema_rs
import openai
from hypothesis import given
from hypothesis import strategies as st

from ostinato.llm.structured import read_schema
from ostinato.serve.openai.fields import Function
from ostinato.serve.openai.tool_calls import Said, ToolCalls
from ostinato.serve.openai.tool_grammar import grammar
from serve.openai_schema import OpenAISchema
from serve.test_openai_tools import TOOLS, WEATHER, ask, joined

REPLY: dict[str, Any] = {
    "type": "object",
    "properties": {"sky": {"enum": ["<tool_call>", "blue"]}, "dry": {"type": "boolean"}},
    "required": ["sky", "dry"],
    "additionalProperties": False,
}
FORM: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "reply", "schema": REPLY, "strict": True},
}


def biased(client: openai.OpenAI, letter: str) -> dict[str, float]:
    """A bias by which an answer begins with a letter where it may."""
    told = client.post("/../tokenize", body={"prompt": letter}, cast_to=dict[str, Any])
    return {str(told["tokens"][0]): 100}


def form_request(client: openai.OpenAI, begins: str, **more: Any) -> dict[str, Any]:
    return ask(
        response_format=FORM,
        logit_bias=biased(client, begins),
        parallel_tool_calls=False,
        **more,
    )


@pytest.mark.parametrize("choice", ["auto", None])
@pytest.mark.parametrize("seed", range(3))
def test_text_keeps_to_the_form_also_where_tools_may_be_called(
    client: openai.OpenAI, schema: OpenAISchema, choice: str | None, seed: int
) -> None:
    asked = form_request(client, "{", seed=seed, tool_choice=choice)
    answer = client.chat.completions.create(**asked)
    schema.check("CreateChatCompletionResponse", answer.to_dict())
    message = answer.choices[0].message
    assert message.tool_calls is None
    jsonschema_rs.validate(REPLY, json.loads(message.content or ""))
    calls, text, finish = joined(client.chat.completions.create(stream=True, **asked))
    assert (calls, text, finish) == ([], message.content, "stop")


@pytest.mark.parametrize("seed", range(3))
def test_a_tool_is_called_also_where_text_would_keep_to_a_form(
    client: openai.OpenAI, schema: OpenAISchema, seed: int
) -> None:
    asked = form_request(client, "<", seed=seed)
    chunks = list(client.chat.completions.create(stream=True, **asked))
    for chunk in chunks:
        schema.check("CreateChatCompletionStreamResponse", chunk.to_dict())
    calls, text, finish = joined(chunks)
    assert (text, finish) == ("", "tool_calls")
    [call] = calls
    if call["name"] == "weather":
        jsonschema_rs.validate(WEATHER, json.loads(call["arguments"]))
    whole = client.chat.completions.create(**asked).choices[0].message
    assert whole.content is None
    assert whole.tool_calls is not None
    assert [one.to_dict()["function"] for one in whole.tool_calls] == calls


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}], ids=str
)
def test_an_answer_that_must_call_has_no_text_to_keep_to_the_form(
    client: openai.OpenAI, choice: Any
) -> None:
    asked = form_request(client, "{", tool_choice=choice)
    message = client.chat.completions.create(**asked).choices[0].message
    assert message.content is None
    assert message.tool_calls


def test_with_tool_choice_none_the_form_is_all_there_is(client: openai.OpenAI) -> None:
    asked = form_request(client, "<", tool_choice="none")
    message = client.chat.completions.create(**asked).choices[0].message
    jsonschema_rs.validate(REPLY, json.loads(message.content or ""))


@pytest.mark.parametrize(
    ("form", "begins", "texts"),
    [
        ({"type": "choice", "choice": ["yes", '<tool "no">']}, "y", ["yes"]),
        ({"type": "choice", "choice": ["yes", "<tool no>"]}, "<", ["<tool no>", None]),
        ({"type": "regex", "regex": r"a/b\n|<tool_call>[xy]"}, "a", ["a/b\n"]),
        ({"type": "regex", "regex": "<tool_call>[xy]|a\\/b"}, "<", [None]),
        ({"type": "json_object"}, "<", [None]),
    ],
    ids=str,
)
def test_every_form_goes_with_tools(
    client: openai.OpenAI, form: dict[str, Any], begins: str, texts: list[str | None]
) -> None:
    asked = ask(response_format=form, logit_bias=biased(client, begins), seed=4)
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.message.content in texts
    assert (choice.message.content is None) == bool(choice.message.tool_calls)


def test_a_form_of_no_known_kind_is_refused_by_its_own_name(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "wood"}}}
    with pytest.raises(openai.BadRequestError, match="wood") as refused:
        client.chat.completions.create(**ask(response_format=form))
    assert refused.value.param == "response_format"


ANSWER = '{"sky": "<tool_call>", "next": "\\n{\\"name\\": \\"find\\", \\"arguments\\": {}}"}'


@given(st.lists(st.integers(0, len(ANSWER)), max_size=6))
def test_text_of_a_form_is_never_read_as_a_call(cuts: list[int]) -> None:
    calls = ToolCalls(has_form=True)
    places = sorted({0, *cuts, len(ANSWER)})
    pieces = [piece for a, b in pairwise(places) for piece in calls.push(ANSWER[a:b])]
    pieces += calls.finish()
    assert all(isinstance(piece, Said) for piece in pieces)
    assert "".join(piece.text for piece in pieces if isinstance(piece, Said)) == ANSWER


@pytest.mark.parametrize("answer", ["", "<", "<tool", "<tool no>"])
def test_what_only_begins_like_a_call_is_text_of_the_form(answer: str) -> None:
    calls = ToolCalls(has_form=True)
    pieces = [piece for letter in answer for piece in calls.push(letter)] + calls.finish()
    assert "".join(piece.text for piece in pieces if isinstance(piece, Said)) == answer
    assert not calls.count


def test_the_form_does_not_open_a_second_way_for_text_before_a_call() -> None:
    written = grammar(
        [Function(name=TOOLS[1]["function"]["name"])],
        required=False,
        parallel=True,
        form=read_schema({"choices": ["yes"]}),
    )
    assert written.splitlines()[0] == 'start: answer | "<tool_call>" body (next body)*'
    assert "FREE" not in written
