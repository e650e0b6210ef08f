"""What a grammar would be made of though no answer is kept to it: refused, by its keyword."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.errors import UsageError
from ostinato.llm.structured import read_schema
from ostinato.llm.structured.unkept import check_kept

INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "integer", "minimum": 10**30}, "minimum"),
        ({"type": "integer", "maximum": -(2**63) - 1}, "maximum"),
        ({"type": "array", "minItems": 10**20}, "minItems"),
        ({"enum": [1, 2**64]}, "enum"),
        ({"properties": {"a": {"anyOf": [{}, {"const": 2**64}]}}}, "const"),
    ],
)
def test_a_number_beyond_64_bits_is_refused_when_the_schema_is_read(
    schema: dict[str, Any], keyword: str
) -> None:
    with pytest.raises(UsageError, match=f"{keyword} has a whole number") as caught:
        read_schema(schema)
    assert caught.value.code == "OST5062"


@pytest.mark.parametrize("number", [-(2**63), 2**64 - 1, 1e300, True])
def test_a_number_of_64_bits_is_read(number: float) -> None:
    assert read_schema({"enum": [number]}) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": INTEGER, "minProperties": 2},
        {"type": ["object", "null"], "minProperties": 2},
        {"patternProperties": {"^a": INTEGER}, "minProperties": 2.0},
        {"properties": {"a": INTEGER}, "required": ["a"], "minProperties": 3},
        {"items": {"$defs": {"a": {"anyOf": [{"minProperties": 2}]}}}},
    ],
)
def test_keys_are_not_counted_for_one_may_come_twice(schema: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="minProperties is") as caught:
        check_kept(schema)
    assert caught.value.code == "OST5062"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "minProperties": 1},
        {"type": "object", "maxProperties": 3},
        {"properties": {"a": INTEGER}, "required": ["a"], "minProperties": 2},
        {"type": "array", "minProperties": 9},
        {"properties": {"minProperties": {"enum": [{"minProperties": 9}]}}},
        {"minProperties": "two"},  # the compiler says what is wrong with that
    ],
)
def test_what_required_keys_and_one_more_fulfil_is_taken(schema: dict[str, Any]) -> None:
    check_kept(schema)


@pytest.mark.parametrize("bound", ["exclusiveMinimum", "exclusiveMaximum"])
@pytest.mark.parametrize("around", [{}, {"type": "array"}])
def test_a_bound_without_a_number_is_refused(bound: str, around: dict[str, Any]) -> None:
    part = {"type": "integer", bound: True}
    with pytest.raises(UsageError, match=f"{bound} is true and there is no") as caught:
        check_kept({**around, "items": part} if around else part)
    assert caught.value.code == "OST5062"


def test_a_bound_as_draft_4_has_it_is_taken() -> None:
    check_kept({"type": "integer", "minimum": 3, "exclusiveMinimum": True})
    check_kept({"type": "integer", "maximum": 3, "exclusiveMaximum": False})
    check_kept({"type": "integer", "exclusiveMinimum": 3})


def node(link: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A schema whose definition "n" is an object with one link."""
    definition = {"type": "object", "properties": {"link": link}, "required": ["link"], **more}
    return {"$ref": "#/$defs/n", "$defs": {"n": definition, "other": {"$ref": "#/$defs/n"}}}


SELF = {"$ref": "#/$defs/n"}


@pytest.mark.parametrize(
    "link",
    [
        SELF,
        {"$ref": "#/$defs/other"},
        {"allOf": [{"type": "object"}, SELF]},
        {"type": "array", "minItems": 1, "items": SELF},
        {"type": "array", "minItems": 1, "prefixItems": [SELF]},
    ],
)
def test_what_must_hold_itself_is_refused_for_it_never_ends(link: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"'#/\$defs/(n|other)' requires itself") as caught:
        check_kept(node(link))
    assert caught.value.code == "OST5062"


@pytest.mark.parametrize(
    "schema",
    [
        node({"anyOf": [SELF, {"type": "null"}]}),
        node({"type": "array", "items": SELF}),
        node({"type": "array", "minItems": 1, "prefixItems": [{}], "items": SELF}),
        node({"type": ["array", "null"], "minItems": 1, "items": SELF}),
        node(SELF, required=[]),
        node(SELF, type=["object", "null"]),
        node({"$ref": "#/$defs/none"}),
        {"$defs": {"n": 3}, "$ref": "#/$defs/n"},
    ],
)
def test_what_may_hold_itself_is_taken(schema: dict[str, Any]) -> None:
    check_kept(schema)
