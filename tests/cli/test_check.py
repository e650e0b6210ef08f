"""`ostinato check`: its words, its JSON and its exit status."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.doctor.check import apart
from ostinato.doctor.check.answering import answer
from ostinato.doctor.check.ending import process_goes_on

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

import os, sys, threading

def sys_exit():
    def step(x):
        sys.exit(0)
    return step, torch.ones(2, device="cuda")

def sys_exit_with_text():
    def step(x):
        sys.exit("text")
    return step, torch.ones(2, device="cuda")

def interrupted():
    def step(x):
        raise KeyboardInterrupt
    return step, torch.ones(2, device="cuda")

def generator_exit():
    def step(x):
        raise GeneratorExit
    return step, torch.ones(2, device="cuda")

def sudden_exit():
    def step(x):
        os._exit(0)
    return step, torch.ones(2, device="cuda")

def sudden_exit_that_is_swallowed():
    def step(x):
        try:
            os._exit(0)
        except BaseException:
            return x + 1
    return step, torch.ones(2, device="cuda")

def sudden_exit_in_a_thread():
    def step(x):
        other = threading.Thread(target=os._exit, args=(0,))
        other.start()
        other.join()
        return x + 1
    return step, torch.ones(2, device="cuda")

def replaced():
    def step(x):
        os.execl("/bin/true", "true")
    return step, torch.ones(2, device="cuda")

def factory_exits():
    os._exit(0)

def forks():
    def step(x):
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return x + 1
    return step, torch.ones(2, device="cuda")

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
    monkeypatch.setattr(apart, "answered_apart", answer)  # in this process, which has torch
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


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("sys_exit", "SystemExit: 0 at"),
        ("sys_exit_with_text", "SystemExit: text at"),
        ("interrupted", "KeyboardInterrupt at"),
        ("generator_exit", "GeneratorExit at"),
        ("sudden_exit", "ProcessEnd: os._exit(0) at"),
        ("sudden_exit_that_is_swallowed", "ProcessEnd: os._exit(0) at"),
        ("sudden_exit_in_a_thread", "ProcessEnd: os._exit(0)"),
        ("replaced", "ProcessEnd: os.execv('/bin/true') at"),
    ],
)
def test_a_call_that_ends_the_interpreter_is_no_yes(
    program: str, factory: str, said: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with process_goes_on():  # whatever the command lets through does not take the tests along
        assert run(f"{program}:{factory}", *form) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "OST7054" in shown.err
    assert f"the call fails by itself, captured or not: {said}" in shown.err


def test_a_factory_and_a_module_that_end_the_process_are_no_yes(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "ends_when_imported.py").write_text("import os\nos._exit(0)\n", "utf-8")
    with process_goes_on():
        for target in (f"{program}:factory_exits", "ends_when_imported:make"):
            assert run(target) == 2
            said = capsys.readouterr().err
            assert "OST7052" in said
            assert "os._exit(0)" in said


def test_a_forked_child_of_the_call_may_end_itself(program: str) -> None:
    leave = os._exit
    assert run(f"{program}:forks") in (0, 1, 3)
    assert os._exit is leave


def test_json_is_all_there_is_on_stdout_whatever_the_program_prints(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{program}:bad", "--json") == 1
    shown = capsys.readouterr()
    read = json.loads(shown.out)
    assert (read["verdict"], read["blockers"][0]["place"]["line"]) == ("not-capturable", 12)
    assert "made" in shown.err
    assert "inside" in shown.err
