"""An answer that cannot be whole is refused, and none that could be."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import tokenizers
from tokenizers import models

from ostinato.errors import UsageError
from ostinato.serve.fitting import Tongue
from ostinato.serve.least_answer import Least, least_answer
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
        ({"enum": ["four", False]}, False),
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


MANY = {"type": "array", "items": {"type": "integer"}, "minItems": 500}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": MANY}}
TEXT = {"format": {"type": "json_schema", "name": "n", "schema": MANY}}
SAID = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/chat/completions",
            {"messages": SAID, "response_format": FORM, "max_tokens": 16},
            "response_format",
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
    assert "has at least 499 tokens, and the answer may have 16; allow 499" in error["message"]


def test_where_it_could_be_whole_the_engine_is_asked(service: Running) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {**MANY, "minItems": 17}}}
    body = {"messages": SAID, "response_format": form, "max_tokens": 16}
    answer = httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"
