"""The script that runs the GPU's tests: what it takes first, and what a file says meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.scripts import script


@pytest.fixture
def runs(repository: Path) -> Iterator[ModuleType]:
    with script(repository, "gpu_tests") as module:
        yield module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files of tests, one of which has none for a GPU."""
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text("a gpu\n")
    (tmp_path / "test_plain.py").write_text("nothing\n")
    return tmp_path


def test_what_is_named_first_is_run_first_and_once(
    runs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(file: Path) -> tuple[Path, int, dict[str, str]]:
        ran.append(file.stem)
        return file, 0, {f"{file.stem}::works": "passed"}

    monkeypatch.setattr(runs, "_run", run)
    target = folder / "result.json"
    assert runs.main(target, 1, [folder / "test_c.py", folder]) == 0
    assert ran == ["test_c", "test_a", "test_b"]
    assert json.loads(target.read_text())["counts"] == {"passed": 3}


def test_each_test_of_a_file_that_takes_long_is_run_by_itself(
    runs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / "test_b.py"
    long.write_text(
        "a gpu\ndef test_one():\n    pass\n\ndef test_two():\n    def test_inner(): ...\n"
    )
    ran = []

    def run(file: Path) -> tuple[Path, int, dict[str, str]]:
        ran.append(file.name)
        return file, 0, {file.name: "passed"}

    monkeypatch.setattr(runs, "_run", run)
    target = folder / "result.json"
    assert runs.main(target, 1, [long, folder], [long]) == 0
    assert ran == ["test_b.py::test_one", "test_b.py::test_two", "test_a.py", "test_c.py"]
    assert json.loads(target.read_text())["not_run"] == []


def test_before_the_first_file_has_ended_the_result_says_that_all_are_left(
    runs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = folder / "result.json"
    seen: list[Any] = []

    def run(file: Path) -> tuple[Path, int, dict[str, str]]:
        seen.append(json.loads(target.read_text())["not_run"])
        return file, 1, {f"{file.stem}::fails": "failed"}

    monkeypatch.setattr(runs, "_run", run)
    assert runs.main(target, 1, [folder / "test_a.py"]) == 1
    assert seen == [[str(folder / "test_a.py")]]
    done = json.loads(target.read_text())
    assert (done["not_run"], done["failed"]) == ([], ["test_a::fails"])


def test_a_file_that_breaks_off_is_named(
    runs: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_run", lambda file: (file, -11, {}))
    target = folder / "result.json"
    assert runs.main(target, 2, [folder / "test_b.py"]) == 1
    assert json.loads(target.read_text())["crashed"] == [f"{folder / 'test_b.py'}: exit status -11"]
