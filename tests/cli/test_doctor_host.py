"""`ostinato doctor host`: the machine in words and as JSON, whatever can be seen of it."""

from __future__ import annotations

import json
import os

import pytest

from ostinato import cli
from ostinato.doctor.host_evidence import HostEvidence
from ostinato.doctor.plain import from_plain


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor", "host", "--no-load", *words])
    return int(exit_.value.code or 0)


def test_this_machine_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--pid", str(os.getpid())) == 0
    shown = capsys.readouterr().out
    for name in ("cpu", "process", "limits", "container", "kernel", "gpu"):
        assert any(line.startswith(name) for line in shown.splitlines()), shown


def test_this_machine_as_json_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    read = json.loads(capsys.readouterr().out)
    host = from_plain(HostEvidence, read["host"])
    assert host.kernel
    assert read["version"] == 1
    assert isinstance(read["findings"], list)


def test_a_process_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--pid", "4194305") == 2
    assert "OST7053: there is no process 4194305 here" in capsys.readouterr().err
