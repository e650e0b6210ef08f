"""Streaming: new tokens become text as they come, on any stdout there may be."""

import io
import sys

import pytest
import torch

from ostinato.checkpoints import Detokenizer
from ostinato.cli.streaming import TokenStream, bar, prepare_stdout, write_now


def letters(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def test_the_prompt_is_not_part_of_the_answer() -> None:
    said: list[str] = []
    stream = TokenStream(Detokenizer(letters), said.append)
    stream.put(torch.tensor([[104, 105]]))
    stream.put(torch.tensor([97]))
    stream.put(torch.tensor([98, 99]))
    stream.end()
    assert said == ["a", "bc", ""]


def test_new_tokens_are_counted_and_the_prompt_is_not() -> None:
    counts: list[int] = []
    stream = TokenStream(counted=counts.append)
    for ids in ([[1, 2, 3]], [4], [5, 6]):
        stream.put(torch.tensor(ids))
    stream.end()
    assert counts == [1, 2]


def test_a_stdout_without_the_characters_gets_marks_instead_of_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    prepare_stdout()
    write_now("né€")
    assert raw.getvalue() == b"n??"


def test_a_closed_stdout_takes_everything_and_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    prepare_stdout()
    write_now("lost")
    sys.stdout.close()


def test_no_bar_is_drawn_into_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with bar() as tell:
        tell("loading", 0.5)
    assert capfd.readouterr() == ("", "")
