"""JSON that was cut off anywhere is made whole by what is added, never by taking back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ostinato.serve.openai.json_closing import JsonCloser

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


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_any_beginning_of_json_is_closed_to_json(
    value: Any, is_ascii: bool, indent: int | None, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    cut = data.draw(st.integers(0, len(text)))
    closer = JsonCloser()
    assert closer.feed(text[:cut]) <= cut
    whole = text[:cut] + closer.closing()
    msgspec.json.decode(whole.encode())  # stricter than Python's own: no half of a character


@given(VALUES, st.data())
def test_it_does_not_matter_how_the_text_was_cut_into_pieces(
    value: Any, data: st.DataObject
) -> None:
    text = json.dumps({"value": value})[:-1]
    middle = data.draw(st.integers(0, len(text)))
    in_two, at_once = JsonCloser(), JsonCloser()
    in_two.feed(text[:middle])
    in_two.feed(text[middle:])
    at_once.feed(text)
    assert in_two.closing() == at_once.closing()


def test_what_comes_behind_the_value_is_not_taken() -> None:
    closer = JsonCloser()
    assert closer.feed('{"a": [1]}}\n</tool_call>') == len('{"a": [1]}')
    assert closer.is_whole
    assert closer.closing() == ""


def test_half_of_a_character_is_completed() -> None:
    closer = JsonCloser()
    closer.feed('"\\ud83d')
    assert json.loads('"\\ud83d' + closer.closing()) == "\ud83d\udc00".encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16")
