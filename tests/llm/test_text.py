"""Text as it comes: pieces never depend on how tokens were cut, and nothing is taken back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.llm.text import AnswerText

LETTERS = "abcdefgh"


def decode(ids: Sequence[int]) -> str:
    """Three ids per letter make a euro sign, byte by byte; the others are letters."""
    spelled = b"".join(
        "\u20ac".encode()[token - 100 : token - 99] if token >= 100 else LETTERS[token].encode()
        for token in ids
    )
    return spelled.decode(errors="replace")


EURO = [100, 101, 102]


def read(text: AnswerText, pieces: Sequence[Sequence[int]]) -> tuple[list[str], int]:
    said, taken = [], 0
    for piece in pieces:
        new, count = text.push(piece)
        said.append(new)
        taken += count
    return [*said, text.finish()], taken


def test_a_character_comes_when_it_is_whole() -> None:
    said, _ = read(AnswerText(decode), [[0], EURO[:1], EURO[1:2], EURO[2:], [1]])
    assert said == ["a", "", "", "\u20ac", "b", ""]


def test_what_could_begin_a_stop_text_is_held_back() -> None:
    said, taken = read(AnswerText(decode, ["cde"]), [[0], [1], [2], [3], [0]])
    assert said == ["a", "b", "", "", "cda", ""]
    assert taken == 5


def test_a_stop_text_is_cut_and_the_tokens_behind_it_are_not_taken() -> None:
    text = AnswerText(decode, ["cd"])
    assert text.push([0, 1, 2, 3, 4, 5]) == ("ab", 4)
    assert text.is_stopped
    assert text.push([6]) == ("", 0)
    assert text.finish() == ""


def test_the_first_of_several_stop_texts_cuts() -> None:
    assert AnswerText(decode, ["de", "bcde"]).push([0, 1, 2, 3, 4]) == ("a", 5)


def test_a_stop_text_may_end_inside_a_token_or_be_spread_over_several() -> None:
    assert AnswerText(decode, ["\u20acb"]).push([0, *EURO, 1, 2]) == ("a", 5)


def test_what_was_held_back_comes_at_the_end() -> None:
    said, _ = read(AnswerText(decode, ["cde"]), [[0, 2, 3]])
    assert said == ["a", "cd"]
    said, _ = read(AnswerText(decode), [[0], EURO[:2]])
    assert said == ["a", "", "\ufffd"]


def test_the_first_min_tokens_tokens_say_no_stop_text() -> None:
    said, taken = read(AnswerText(decode, ["ab"], min_tokens=2), [[0, 1, 0, 1, 5]])
    assert ("".join(said), taken) == ("ab", 4)


@given(
    ids=st.lists(st.sampled_from([0, 1, 2, *EURO]), max_size=30),
    cuts=st.lists(st.integers(1, 5), max_size=30),
    stops=st.lists(st.text("abc\u20ac", min_size=1, max_size=3), max_size=2),
    min_tokens=st.integers(0, 3),
)
def test_the_text_does_not_depend_on_how_the_tokens_were_cut(
    ids: list[int], cuts: list[int], stops: list[str], min_tokens: int
) -> None:
    pieces, at = [], 0
    for cut in [*cuts, len(ids)]:
        pieces.append(ids[at : at + cut])
        at += cut
    said, taken = read(AnswerText(decode, stops, min_tokens), pieces)
    whole, all_taken = read(AnswerText(decode, stops, min_tokens), [ids])
    assert ("".join(said), taken) == ("".join(whole), all_taken)
    if not stops:
        assert "".join(said) == decode(ids)
    elif not min_tokens:
        cuts_at = [decode(ids).find(stop) for stop in stops]
        found = [place for place in cuts_at if place >= 0]
        # An incomplete character in the middle may become whole only with what follows it.
        if "\ufffd" not in decode(ids):
            assert "".join(said) == decode(ids)[: min(found, default=None)]


@pytest.mark.parametrize("stops", [(), ("zzz",)])
def test_pieces_joined_are_the_text_of_all_tokens(stops: tuple[str, ...]) -> None:
    ids = [0, *EURO, 1, 2, *EURO, *EURO, 3]
    said, _ = read(AnswerText(decode, stops), [[token] for token in ids])
    assert "".join(said) == decode(ids)
