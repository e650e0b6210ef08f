"""An answer with calls of tools is read the same however it was cut into pieces."""

from __future__ import annotations

import json
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.serve.openai.chat import _Chats, _Choice
from ostinato.serve.openai.tool_calls import Arguments, CallBegan, Piece, Said, ToolCalls
from serve.beginnings import is_beginning

ANSWER = (
    'let me <b>look</b> <tool_call>\n{"name": "find", "arguments": {"q": "a}\\"b", "n": [1, {}]}}\n'
    '</tool_call>\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
)


def read(pieces: list[str]) -> list[Piece]:
    ids = count()
    calls = ToolCalls(lambda: f"id{next(ids)}")
    got = [piece for text in pieces for piece in calls.push(text)]
    return got + calls.finish()


def joined(pieces: list[Piece]) -> tuple[str, list[tuple[str, str, str]]]:
    """The text, and each call's id, name and arguments; fails on a piece out of order."""
    text, calls = "", []
    for piece in pieces:
        if isinstance(piece, Said):
            assert not calls
            text += piece.text
        elif isinstance(piece, CallBegan):
            assert piece.index == len(calls)
            calls.append((piece.id, piece.name, ""))
        else:
            assert piece.index == len(calls) - 1
            calls[-1] = (*calls[-1][:2], calls[-1][2] + piece.text)
    return text, calls


WHOLE = (
    "let me <b>look</b> ",
    [("id0", "find", '{"q": "a}\\"b", "n": [1, {}]}'), ("id1", "stop", "{}")],
)


def test_text_and_calls_are_told_apart() -> None:
    assert joined(read([ANSWER])) == WHOLE


def test_letter_by_letter_it_is_the_same() -> None:
    assert joined(read(list(ANSWER))) == WHOLE


@given(st.lists(st.integers(0, len(ANSWER)), max_size=6))
def test_cut_anywhere_it_is_the_same(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(ANSWER)})
    assert joined(read([ANSWER[a:b] for a, b in pairwise(places)])) == WHOLE


@pytest.mark.parametrize("end", range(len(ANSWER) + 1))
def test_arguments_are_json_and_what_was_said_wherever_the_answer_ends(end: int) -> None:
    _, calls = joined(read(list(ANSWER[:end])))
    for (_, name, arguments), (_, said_name, said) in zip(calls, WHOLE[1], strict=False):
        assert name == said_name
        assert is_beginning(json.loads(arguments), json.loads(said))


def test_arguments_are_told_as_they_are_written_and_not_at_the_end() -> None:
    calls = ToolCalls(lambda: "id0")
    head = '<tool_call>\n{"name": "find", "arguments": {"q"'
    assert calls.push(head) == [CallBegan(0, "id0", "find"), Arguments(0, "{")]
    assert calls.push(': "ab') == [Arguments(0, '"q": "ab')]
    assert calls.push("cd") == [Arguments(0, "cd")]


@pytest.mark.parametrize("said", ["", "1", "tru"])
def test_a_call_of_whose_arguments_nothing_is_certain_is_not_told(said: str) -> None:
    calls = ToolCalls()
    assert calls.push('<tool_call>\n{"name": "find", "arguments": ' + said) == []
    assert calls.finish() == []
    assert calls.count == 0
    assert calls.is_cut


def test_only_an_answer_that_ends_in_a_call_is_cut() -> None:
    for end in range(len(ANSWER) + 1):
        calls = ToolCalls()
        calls.push(ANSWER[:end])
        calls.finish()
        begun = ANSWER[:end].count("<tool_call>")
        whole = ANSWER[:end].count("}\n</tool_call>")
        assert calls.is_cut <= (begun > whole)
        if end in (0, len(ANSWER)) or ANSWER[:end].endswith("</tool_call>"):
            assert not calls.is_cut


def test_the_beginning_of_a_mark_is_held_back_until_it_is_sure() -> None:
    calls = ToolCalls()
    assert calls.push("a <tool_") == [Said("a ")]
    assert calls.push("box>") == [Said("<tool_box>")]
    assert calls.push("<") == []
    assert calls.finish() == [Said("<")]


@pytest.mark.parametrize("end", range(1, len("<tool_call>") + 1))
def test_of_an_answer_that_must_be_a_call_no_mark_is_told_as_text(end: int) -> None:
    calls = ToolCalls(must_call=True)
    assert calls.push("<tool_call>"[:end]) == []
    assert calls.finish() == []


@pytest.mark.parametrize(
    ("answer", "reason", "finish"),
    [
        (ANSWER, "stop", "tool_calls"),
        (ANSWER, "length", "length"),
        (ANSWER[:70], "stop", "stop"),  # a stop text came in the middle of the first call
        (ANSWER[:70], "length", "length"),
        ("hello", "stop", "stop"),
    ],
)
def test_only_calls_that_are_whole_are_to_be_made(answer: str, reason: str, finish: str) -> None:
    calls = ToolCalls()
    calls.push(answer)
    calls.finish()
    assert _Chats.finish(_Choice(calls), reason) == finish
