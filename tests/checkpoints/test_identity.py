"""A model is known by what its folder holds, and not by where it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ostinato.checkpoints.identity import digest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    place.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"):
        (place / name).write_text(name)
    return place


def test_a_copy_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert digest_of(str(copy)) == digest_of(str(folder)) != str(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]
)
def test_a_change_of_what_decides_the_answers_is_another_model(folder: Path, name: str) -> None:
    before = digest_of(str(folder))
    (folder / name).write_text("changed!".ljust(len(name))[: len(name)])  # of the same size
    assert digest_of(str(folder)) != before


def test_what_decides_nothing_may_change(folder: Path) -> None:
    before = digest_of(str(folder))
    (folder / "README.md").write_text("of no weight")
    assert digest_of(str(folder)) == before


def test_two_files_that_change_places_are_another_model(folder: Path) -> None:
    before = digest_of(str(folder))
    one, two = folder / "config.json", folder / "tokenizer.json"
    first, second = one.read_text(), two.read_text()
    one.write_text(second)
    two.write_text(first)
    assert digest_of(str(folder)) != before


def test_a_known_name_is_its_own() -> None:
    assert digest_of("smollm2") == "smollm2"


def test_what_cannot_be_read_is_left_to_who_loads_it(tmp_path: Path) -> None:
    assert digest_of(str(tmp_path / "none")) == str(tmp_path / "none")
    assert digest_of(str(tmp_path)) == str(tmp_path)
    (tmp_path / "model.safetensors").mkdir()
    assert digest_of(str(tmp_path)) == str(tmp_path)
