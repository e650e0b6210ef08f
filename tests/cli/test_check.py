"""`ostinato check`: its words, its JSON and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ostinato import cli

PROGRAM = """
import torch
from torch import nn

def good():
    return nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")

def bad():
    print("made")
    def step(x):
        print("inside")
        return x[x > 0]
    return step, torch.ones(4, device="cuda")

def unknown():
    return (lambda x: x @ x), torch.ones(2, 3, device="cuda")

def wrong():
    return 3
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "checked_by_the_command_line"
    (tmp_path / f"{name}.py").write_text(PROGRAM, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return name


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["check", *words])
    return int(exit_.value.code or 0)


@pytest.mark.parametrize(
    ("factory", "status", "said"),
    [
        ("good", 0, "can be captured as a CUDA graph"),
        ("bad", 1, "1. data-dependent-shape: aten.index.Tensor"),
        ("unknown", 1, "cannot be judged from here"),
    ],
)
def test_the_status_says_the_verdict(
    program: str, factory: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{program}:{factory}") == status
    shown = capsys.readouterr().out
    assert shown.startswith(f"{program}:{factory} ")
    assert said in shown


@pytest.mark.parametrize(
    ("target", "code"),
    [("{}:wrong", "OST7051"), ("{}:none", "OST7050"), ("{}", "OST7050"), ("no_such:f", "OST7050")],
)
def test_bad_use_exits_2_with_its_code(
    program: str, target: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(target.format(program)) == 2
    assert code in capsys.readouterr().err


def test_json_is_all_there_is_on_stdout_whatever_the_program_prints(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{program}:bad", "--json") == 1
    shown = capsys.readouterr()
    read = json.loads(shown.out)
    assert (read["verdict"], read["blockers"][0]["place"]["line"]) == ("not-capturable", 12)
    assert "made" in shown.err
    assert "inside" in shown.err
