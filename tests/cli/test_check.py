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

@torch.library.custom_op("ostinato_check_cli_tests::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

def unknown():
    return (lambda x: opaque(x)), torch.ones(2, 3, device="cuda")

def fails():
    return (lambda x: x @ x), torch.ones(2, 3, device="cuda")

async def later():
    return good()

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
        ("unknown", 3, "cannot be judged from here"),
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
    [
        ("{}:wrong", "OST7051"),
        ("{}:later", "OST7051"),
        ("{}:fails", "OST7054"),
        ("{}:none", "OST7050"),
        ("{}.py:good", "OST7050"),
        ("{}", "OST7050"),
        ("no_such:f", "OST7050"),
    ],
)
def test_bad_use_exits_2_with_its_code(
    program: str, target: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(target.format(program)) == 2
    assert code in capsys.readouterr().err


def test_a_file_is_answered_with_a_command_that_works(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{program}.py:good") == 2
    said = capsys.readouterr().err
    assert f"run `ostinato check {program}:good`" in said
    assert run(f"{program}:good") == 0


def test_a_call_that_fails_by_itself_is_told_its_error_and_no_word_of_a_gpu(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{program}:fails", "--json") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "the call fails by itself, captured or not: RuntimeError: mat1 and mat2" in shown.err
    assert "GPU" not in shown.err


def test_json_is_all_there_is_on_stdout_whatever_the_program_prints(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{program}:bad", "--json") == 1
    shown = capsys.readouterr()
    read = json.loads(shown.out)
    assert (read["verdict"], read["blockers"][0]["place"]["line"]) == ("not-capturable", 12)
    assert "made" in shown.err
    assert "inside" in shown.err
