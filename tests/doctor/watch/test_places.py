"""`ostinato doctor run`: where its reports go is known before a program runs for hours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ostinato.cli import doctor
from ostinato.doctor import supervise
from ostinato.doctor.evidence import Ending, Evidence, Subject
from ostinato.errors import UsageError

SCRIPT_STATUS = 7


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text("open('ran', 'w').close()\n", encoding="utf-8")
    return path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were started; none is, as only what is round one matters here."""
    started: list[str] = []

    def run(program: list[str], _: dict[str, bool]) -> supervise.Outcome:
        started.append(program[0])
        subject = Subject(title="program.py", ending=Ending.EXITED, exit_status=SCRIPT_STATUS)
        return supervise.Outcome(Evidence(subject=subject), SCRIPT_STATUS)

    monkeypatch.setattr(supervise, "run_watched", run)
    return started


def run(*words: str) -> Result:
    return CliRunner().invoke(doctor.app, ["run", *words])


@pytest.mark.parametrize("option", ["--html", "--json", "--folded", "--evidence"])
def test_a_report_that_has_no_folder_is_refused_before_the_program_runs(
    option: str, script: Path, tmp_path: Path, ran: list[str]
) -> None:
    result = run(option, str(tmp_path / "nowhere" / "r"), "--", str(script))
    assert (result.exit_code, ran) == (2, [])
    assert option in result.output
    assert run(option, str(tmp_path), "--", str(script)).exit_code == 2
    assert ran == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_nothing_may_be_written_to_is_refused(
    script: Path, tmp_path: Path, ran: list[str]
) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    assert run("--json", str(tmp_path / "closed" / "r"), "--", str(script)).exit_code == 2
    assert ran == []


def test_a_baseline_that_cannot_be_read_is_refused_before_the_program_runs(
    script: Path, tmp_path: Path, ran: list[str]
) -> None:
    for content in (None, "no report"):
        if content is not None:
            (tmp_path / "b.json").write_text(content, encoding="utf-8")
        result = run("--baseline", str(tmp_path / "b.json"), "--", str(script))
        assert isinstance(result.exception, UsageError)
        assert result.exception.code == "OST7026"
    assert ran == []


def test_exit_on_regression_needs_something_to_compare_with(script: Path, ran: list[str]) -> None:
    assert run("--exit-on-regression", "--", str(script)).exit_code == 2
    assert ran == []


def test_a_report_that_cannot_be_written_any_more_hides_neither_report_nor_status(
    script: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *_: object, **__: object) -> int:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    names = ("html", "json", "evidence")
    words = [f"--{name}={tmp_path / name}" for name in names]
    result = run(*words, "--", str(script))
    assert (result.exit_code, ran) == (SCRIPT_STATUS, [str(script)])
    assert "exited with status 7" in result.output
    assert result.output.count("No space left on device") == 3
