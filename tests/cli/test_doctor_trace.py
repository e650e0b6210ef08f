"""`ostinato doctor trace FILE`: the report on a saved trace, in words, as JSON, and as evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.trace.written import eager
from ostinato import cli
from ostinato.doctor.evidence import from_json


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor", "trace", *map(str, words)])
    return int(exit_.value.code or 0)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return eager().write(tmp_path / "trace.json.gz")


def test_the_report_names_what_was_found(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace) == 0
    assert "OST102 launch-bound-step" in capsys.readouterr().out


def test_json_is_the_report_that_run_writes_too(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(trace, "--json") == 0
    read = json.loads(capsys.readouterr().out)
    assert "OST102" in {finding["code"] for finding in read["findings"]}


def test_evidence_and_page_are_written_beside_the_report(trace: Path, tmp_path: Path) -> None:
    saved, page = tmp_path / "evidence.json", tmp_path / "page.html"
    assert run(trace, "--evidence", saved, "--html", page) == 0
    assert from_json(saved.read_text("utf-8")).steps_seen == 10
    assert "launch-bound-step" in page.read_text("utf-8")


def test_a_step_can_be_named(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace, "--step", "no such mark") == 0
    assert "no steps are marked" in capsys.readouterr().out


def test_a_file_that_is_no_trace_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "none.json") == 2
    assert "OST7060" in capsys.readouterr().err
