"""An answer that cannot be whole is refused, and none that could be."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from ostinato.errors import UsageError
from ostinato.llm.structured import read_schema
from ostinato.serve.fitting import Tongue
from ostinato.serve.least_answer import Least, least_answer
from ostinato.serve.openai.fields import Function
from ostinato.serve.openai.tool_grammar import least_call
from serve.running import Running

PAIR = {
    "type": "object",
    "properties": {"a": {"type": "string", "minLength": 3}, "b": {"$ref": "#/$defs/list"}},
    "required": ["a", "b"],
}
LIST = {"type": "array", "items": {"type": "integer"}, "minItems": 4}


@pytest.mark.parametrize(
    ("schema", "shortest"),
    [
        ({"type": "json_object"}, {}),
        ({"type": "integer", "minimum": 100}, 0),  # of a number one letter is known
        ({"type": "string", "minLength": 7}, "1234567"),
        ({"type": ["boolean", "null"]}, None),
        (LIST, [0, 0, 0, 0]),
        ({**LIST, "items": {"type": "array", "minItems": 2}}, [[0, 0]] * 4),
        ({"type": "array", "prefixItems": [{"type": "null"}], "minItems": 2}, [None, 0]),
        ({"type": "array", "items": [{"type": "null"}], "minItems": 2}, [None, 0]),
        ({"type": "object", "required": ["a", "a"], "minProperties": 2}, {"a": 0, "": 0}),
        ({**PAIR, "$defs": {"list": LIST}}, {"a": "123", "b": [0, 0, 0, 0]}),
        ({"const": "four"}, "four"),
        ({"const": {"a": [1, {}], "b": "\n"}}, {"a": [1, {}], "b": "\n"}),
        ({"enum": ["four", False]}, False),
        ({"enum": [[[1000, -7], []], {"a": None}]}, {"a": None}),
        ({"type": "array", "minItems": 2, "items": {"const": {"a": [1]}}}, [{"a": [1]}] * 2),
        ({"oneOf": [{"const": [1, 2, 3]}, {"const": [10, 11, 12]}]}, [1, 2, 3]),
        ({"anyOf": [LIST, {"type": "string", "minLength": 9}]}, None),
        ({"allOf": [LIST, {"type": "array", "minItems": 6}]}, [0] * 6),
        ({"type": "array", "minItems": True}, []),
    ],
)
def test_the_bound_is_the_shortest_answer_or_less(schema: Any, shortest: Any) -> None:
    least = least_answer(schema)
    text = json.dumps(shortest, separators=(",", ":"))
    if "anyOf" in schema:  # of either the letters of one and the commas of the other
        assert least == Least(9, 0)
    else:
        assert least == Least(len(text), text.count(","))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


def shortest(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@given(VALUES)
def test_a_constant_counts_as_it_is_written(value: Any) -> None:
    assert least_answer({"const": value}).bytes == len(shortest(value))
    nested = {"type": "object", "properties": {"é": {"enum": [value]}}, "required": ["é"]}
    assert least_answer(nested).bytes == len(shortest({"é": value}))


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_of_several_the_shortest_counts(values: list[Any]) -> None:
    least = min(len(shortest(value)) for value in values)
    assert least_answer({"enum": values}).bytes == least
    assert least_answer({"anyOf": [{"const": value} for value in values]}).bytes == least


@pytest.mark.parametrize(
    ("value", "written"),
    [(1.0, 1), (-0.5, 4), (100.0, 3), (1e22, 1), (1.5e-9, 1), (10**400, 401), ("\ud800", 3)],
)
def test_what_may_be_written_in_several_ways_counts_as_the_shortest(
    value: Any, written: int
) -> None:
    assert least_answer({"const": value}).bytes == written


@pytest.mark.parametrize(
    ("schema", "letters"),
    [
        ({"regex": "[0-9]{9}"}, 1),
        ({"choices": ["no", "certainly"]}, 2),
        ('{"type": "string", "minLength": 9}', 1),
        ({"minItems": 9}, 1),  # a number keeps to it
        ({"$ref": "#"}, 1),
        ({"$ref": "http://elsewhere"}, 1),
        ({"$ref": "#/not/there"}, 1),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, 5),  # once
    ],
)
def test_what_is_not_understood_counts_little(schema: Any, letters: int) -> None:
    assert least_answer(schema) == Least(letters)


def test_the_walk_is_bounded_however_a_schema_refers_to_itself() -> None:
    part = {"type": "array", "minItems": 2, "prefixItems": [{"$ref": "#/b"}, {"$ref": "#/b"}]}
    schema: dict[str, Any] = {"type": "array", "minItems": 1 << 80, "items": part}
    for name in "bcdefghijklmnopqrstuvw":
        after = {"$ref": f"#/{chr(ord(name) + 1)}"}
        schema[name] = {"type": "array", "minItems": 2, "prefixItems": [after, after]}
    assert least_answer(schema) == Least(1 << 62, 1 << 62)


def test_a_constant_of_any_depth_and_length_is_walked_within_bounds() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert least_answer({"const": deep}).bytes == 2 * 1999 + 1
    assert least_answer({"const": [[]] * 5000}).bytes == 2 + 4999 + 2 * 1998 + 3002


def test_the_walk_goes_only_so_deep() -> None:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(900):
        schema = {"type": "array", "minItems": 1, "items": schema}
    assert least_answer(schema) == Least(2 * 40 + 1)


def tongue(*tokens: str) -> Tongue:
    made = tokenizers.Tokenizer(models.BPE(vocab={t: at for at, t in enumerate(tokens)}, merges=[]))
    return Tongue.of(made)


def test_commas_with_nothing_between_them_are_one() -> None:
    assert tongue("a", "b").commas == 1
    assert tongue(",,,,", "a").commas == 1
    assert tongue(",0,0", ",,,,").commas == 2


def test_as_many_tokens_as_the_longest_could_say_are_enough() -> None:
    said = Tongue(bytes=8, commas=2)
    said.check_answer(Least(80, 20), 10)
    for least in (Least(81, 0), Least(80, 21)):
        with pytest.raises(UsageError, match="at least 11 tokens, and the answer may have 10"):
            said.check_answer(least, 10)


def tools(*schemas: Any) -> list[Function]:
    return [Function(f"f{at}", parameters=schema) for at, schema in enumerate(schemas)]


def test_a_call_that_must_come_counts_with_all_that_stands_round_it() -> None:
    pair = {"type": "object", "properties": {"a": {"const": 5}}, "required": ["a"]}
    least = least_call(tools(pair), required=True)
    text = '<tool_call>\n{"name": "f0", "arguments": {"a":5}}\n</tool_call>'
    assert least == Least(len(text), 1)
    assert least_call(tools(pair, None), required=True) == Least(len(text) - len('"a":5'), 1)


def test_a_call_that_may_come_counts_only_beside_a_form() -> None:
    assert least_call(tools(None), required=False) is None
    assert least_call(tools(None), required=False, form=read_schema({"const": "no"})) == Least(4)
    choices = read_schema({"choices": ["certainly", "yes"]})
    assert least_call(tools(None), required=False, form=choices) == Least(3)
    free = read_schema({"regex": "[0-9]{9}"})
    assert least_call(tools(None), required=False, form=free) == Least(1)
    long = read_schema({"const": "n" * 99})
    call = least_call(tools(None), required=True)
    assert call is not None
    # A call's bytes, and the commas of the form, which has none.
    assert least_call(tools(None), required=False, form=long) == Least(call.bytes)


MANY = {"type": "array", "items": {"type": "integer"}, "minItems": 500}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": MANY}}
TEXT = {"format": {"type": "json_schema", "name": "n", "schema": MANY}}
SAID = [{"role": "user", "content": "hello"}]
NUMBERS = {"type": "object", "properties": {"n": MANY}, "required": ["n"]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": NUMBERS}}]
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/chat/completions",
            {"messages": SAID, "response_format": FORM, "max_tokens": 16},
            "response_format",
        ),
        (
            "/v1/chat/completions",
            {"messages": SAID, "tools": TOOLS, "tool_choice": "required", "max_tokens": 16},
            "tools",
        ),
        (
            "/v1/chat/completions",
            {"messages": SAID, "tools": TOOLS, "tool_choice": NAMED, "max_completion_tokens": 16},
            "tools",
        ),
        (
            "/v1/completions",
            {"prompt": "a", "response_format": FORM, "max_tokens": 16},
            "response_format",
        ),
        (
            "/v1/responses",
            {"input": "a", "store": False, "text": TEXT, "max_output_tokens": 16},
            "text.format",
        ),
    ],
)
def test_every_door_says_so(service: Running, path: str, body: Any, param: str) -> None:
    answer = httpx.post(f"{service.url}{path}", json=body, timeout=120)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "OST6032"
    assert error["param"] == param
    least = 500 if "tools" in body else 499  # its commas
    words = f"has at least {least} tokens, and the answer may have 16; allow {least}"
    assert words in error["message"]


def test_where_no_call_has_to_come_the_engine_is_asked(service: Running) -> None:
    body = {"messages": SAID, "tools": TOOLS, "max_tokens": 4}
    answer = httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200


def test_where_it_could_be_whole_the_engine_is_asked(service: Running) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {**MANY, "minItems": 17}}}
    body = {"messages": SAID, "response_format": form, "max_tokens": 16}
    answer = httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"
