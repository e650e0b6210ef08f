"""What a request may give as its schema: read, or refused, when the request is made."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from ostinato.errors import UsageError
from ostinato.llm.params import SamplingParams
from ostinato.llm.structured import Schema, SchemaKind, read_schema
from ostinato.llm.structured.schema import MOST_BYTES

pydantic = pytest.importorskip("pydantic")


class Person(pydantic.BaseModel):
    name: str
    age: int


@pytest.mark.parametrize(
    ("given", "kind", "content"),
    [
        ({"type": "object"}, SchemaKind.JSON, {"type": "object"}),
        ('{"type": ["integer", "null"]}', SchemaKind.JSON, {"type": ["integer", "null"]}),
        ({}, SchemaKind.JSON, {}),
        ({"type": "json_object"}, SchemaKind.JSON, {"type": "object"}),
        (Person, SchemaKind.JSON, Person.model_json_schema()),
        ({"choices": ["ja", "né"]}, SchemaKind.CHOICES, ["ja", "né"]),
        ('{"choices": ["a"]}', SchemaKind.CHOICES, ["a"]),
    ],
)
def test_a_schema_is_kept_as_its_kind_and_a_text(
    given: Any, kind: SchemaKind, content: Any
) -> None:
    schema = SamplingParams(schema=given).schema
    assert schema.kind is kind
    assert json.loads(schema.text) == content


def test_a_regex_is_kept_as_it_is() -> None:
    assert read_schema({"regex": r"\d+"}) == Schema(SchemaKind.REGEX, r"\d+")


def test_a_grammar_is_kept_as_it_is() -> None:
    assert read_schema({"lark": 'start: "a"'}) == Schema(SchemaKind.LARK, 'start: "a"')


def test_properties_keep_their_order_for_answers_follow_it() -> None:
    schema = read_schema({"properties": {"b": {}, "a": {}}})
    assert schema is not None
    assert list(json.loads(schema.text)["properties"]) == ["b", "a"]


def test_the_compilers_own_options_are_not_for_a_request_to_set() -> None:
    assert read_schema({"type": "object", "x-guidance": {"lenient": True}}) == read_schema(
        {"type": "object"}
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, "got 5"),
        (True, "got True"),
        ("{", "not JSON"),
        ('"object"', "got 'object'"),
        ("[" * 100_000, "not JSON"),
        ({"regex": "a", "maxLength": 3}, "other keys"),
        ({"regex": ""}, "regex must be"),
        ({"regex": 5}, "got 5"),
        ({"choices": []}, "choices must be"),
        ({"lark": ""}, "lark must be"),
        ({"lark": ["start"]}, "lark must be"),
        ({"choices": "yes"}, "got 'yes'"),
        ({"choices": ["a", 1]}, "choices must be"),
        ({"grammar": "start: /a/"}, "no kind of schema has the keys ['grammar']"),
        ({"type": "text"}, "type 'text'"),
        ({"type": ["string", "text"]}, "type 'text'"),
        ({"const": float("nan")}, "cannot be written as JSON"),
        ({"const": object()}, "cannot be written as JSON"),
        ({"const": "\ud800"}, "no Unicode text"),
        ({"enum": ["x" * MOST_BYTES]}, f"at most {MOST_BYTES}"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_schema_is_refused_with_what_it_is(given: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        SamplingParams(schema=given)
    assert caught.value.code == "OST5060"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("key", "meant"), [("propertis", "properties"), ("regexp", "regex"), ("choice", "choices")]
)
def test_a_misspelt_key_is_answered_with_the_nearest(key: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_schema({key: []})
    assert caught.value.remedy == f"did you mean {meant}?"


def test_parameters_with_a_schema_can_be_copied_hashed_and_sent() -> None:
    params = SamplingParams(schema={"type": "object"})
    copied = replace(params, n=2)
    assert copied.schema is params.schema
    assert pickle.loads(pickle.dumps(params)) == params
    assert {params.schema: 1}[read_schema('{"type":"object"}')] == 1
