"""Keys are read from lines; a place without one never means that everybody may call."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato import cli
from ostinato.errors import UsageError
from ostinato.serve.keys import read_keys


def test_each_line_is_a_key_and_comments_are_none() -> None:
    assert read_keys("one\n\n  two  \n# three\n", "keys") == ("one", "two")


@pytest.mark.parametrize("text", ["", " ", "\n\n", "# only a comment\n", "\t\n#\n"])
def test_a_place_without_a_key_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"keys\.txt holds no key") as caught:
        read_keys(text, "keys.txt")
    assert caught.value.code == "OST6067"


@pytest.mark.parametrize("line", ["two words", "schlüssel", "be\x07ll"])
def test_a_line_that_no_header_carries_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(UsageError, match="line 2 of keys is no key") as caught:
        read_keys(f"good\n{line}\n", "keys")
    assert line not in str(caught.value)


def test_the_command_refuses_an_empty_key_file_before_anything_is_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(SystemExit) as exit_:
        cli.main(["serve", "--model", str(tmp_path / "none"), "--api-key-file", str(empty)])
    assert exit_.value.code == 2
    assert "OST6067" in capfd.readouterr().err


def test_the_command_refuses_a_variable_of_blanks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSTINATO_ADMIN_KEYS", " ")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["serve", "--model", str(tmp_path / "none")])
    assert exit_.value.code == 2
    assert "OSTINATO_ADMIN_KEYS holds no key" in " ".join(capfd.readouterr().err.split())
