"""JSON that was cut off anywhere is closed, and says nothing that was not there."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.serve.openai.json_closing import JsonCloser
from serve.beginnings import is_beginning

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
INDENTS = st.sampled_from([None, 1])


def closed(text: str) -> str:
    """What is told of a text, and its closing."""
    closer = JsonCloser()
    assert closer.feed(text) == len(text)
    told = closer.take()
    assert text.startswith(told)
    assert bool(told) == closer.has_begun
    return told + closer.closing()


@given(VALUES, st.booleans(), INDENTS)
def test_any_beginning_of_json_is_closed_to_a_beginning_of_what_it_says(
    value: Any, is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    for cut in range(len(text)):
        whole = closed(text[:cut])
        if whole:  # stricter than Python's own: no half of a character
            assert is_beginning(msgspec.json.decode(whole.encode()), value), (text[:cut], whole)


@given(VALUES, INDENTS)
def test_of_an_object_or_a_list_the_first_letter_can_be_told(
    value: Any, indent: int | None
) -> None:
    for outer in ([value], {"a": value}):
        text = json.dumps(outer, indent=indent)
        assert all(closed(text[:cut]) for cut in range(1, len(text)))
        assert closed(text) == text


@given(VALUES, st.booleans(), st.data())
def test_it_does_not_matter_how_the_text_was_cut_into_pieces(
    value: Any, is_ascii: bool, data: st.DataObject
) -> None:
    text = json.dumps({"value": value}, ensure_ascii=is_ascii)[:-1]
    middle = data.draw(st.integers(0, len(text)))
    in_two, at_once = JsonCloser(), JsonCloser()
    at_once.feed(text)
    in_two.feed(text[:middle])
    told = in_two.take()
    in_two.feed(text[middle:])
    assert told + in_two.take() == at_once.take()
    assert in_two.closing() == at_once.closing()


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ("", ""),
        ("{", "{}"),
        ('{"a"', "{}"),
        ('{"a": ', "{}"),
        ('{"a": "', '{"a": ""}'),
        ('{"a": "b\\', '{"a": "b"}'),
        ('{"a": "b\\u00e', '{"a": "b"}'),
        ('{"a": "b\\ud83d', '{"a": "b"}'),
        ('{"a": "b\\ud83d\\ude', '{"a": "b"}'),
        ('{"a": 12', "{}"),  # it may become 123
        ('{"a": 12 ', '{"a": 12 }'),
        ('{"a": 12,', '{"a": 12}'),
        ('{"a": [1, -', '{"a": [1]}'),
        ('{"a": fals', "{}"),
        ('{"a": false', '{"a": false}'),
        ('{"a": true, "b": [{"c": nul', '{"a": true, "b": [{}]}'),
        ("12", ""),
        ("[", "[]"),
    ],
)
def test_what_is_not_certain_is_left_out(cut: str, whole: str) -> None:
    assert closed(cut) == whole


@pytest.mark.parametrize("value", ['{"a": [1]}', "12", "true", '"a"'])
def test_what_comes_behind_the_value_is_not_taken(value: str) -> None:
    closer = JsonCloser()
    assert closer.feed(value + "}\n</tool_call>") == len(value)
    assert closer.is_whole
    assert closer.take() == value
    assert closer.closing() == ""
