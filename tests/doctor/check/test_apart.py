"""The command checks in a process of its own, and answers whatever becomes of that process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.doctor.check import apart
from ostinato.doctor.check.apart import Answer, answered_apart, ended_without_an_answer

COMMAND = [sys.executable, "-c", "from ostinato import cli; cli.main()", "check"]
PROGRAM = """
import ctypes, signal, sys, time
import torch
C = ctypes.CDLL(None)

def made(step):
    return step, torch.ones(2, device="cuda")

def good():
    C.puts(b"from C")
    print("from Python", sys.argv[-1])
    return made(lambda x: x * 2)

def exits():
    return made(lambda x: C.exit(0))

def crashes():
    return made(lambda x: ctypes.string_at(0))

def runs_out():
    def step(x):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.pause()
        return x
    return made(step)

def began():
    print("began", file=sys.stderr, flush=True)

def loops():
    def step(x):
        began()
        while True:
            pass
    return made(step)

def loops_over_what_we_look_at():
    def step(x):
        began()
        while True:
            time.time()
    return made(step)

def loops_over_torch():
    def step(x):
        began()
        while True:
            x = x * 2
    return made(step)

def asks():
    return made(lambda x: (began(), input()))

def never_lets_go():
    def step(x):
        while True:
            try:
                began()
                while True:
                    pass
            except BaseException:
                pass
    return made(step)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    return tmp_path


def checked(folder: Path, factory: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, f"program:{factory}", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("exits", "the process in which it was checked left with status 0"),
        ("crashes", "the process in which it was checked was ended by SIGSEGV"),
        ("runs_out", "the process in which it was checked was ended by SIGALRM"),
    ],
)
def test_a_process_that_ends_without_an_answer_is_told_and_is_no_verdict(
    folder: Path, factory: str, said: str
) -> None:
    done = checked(folder, factory, "--json")
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert f"OST7056: nothing is known of the call: {said}" in done.stderr
    if factory == "crashes":
        line = 1 + next(i for i, text in enumerate(PROGRAM.split("\n")) if "string_at" in text)
        assert f'program.py", line {line} in' in done.stderr


def test_only_the_report_is_on_stdout_whoever_else_writes_there(folder: Path) -> None:
    done = checked(folder, "good")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("program:good can be captured")
    assert "from C" in done.stderr
    assert "from Python program:good" in done.stderr


@contextmanager
def begun(folder: Path, factory: str) -> Iterator[subprocess.Popen[str]]:
    """A check whose call has begun, in a group of its own."""
    with subprocess.Popen(
        [*COMMAND, f"program:{factory}"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        try:
            wait_for_beginning(running)
            yield running
        finally:
            running.kill()


def wait_for_beginning(running: subprocess.Popen[str]) -> None:
    assert running.stderr is not None
    read = running.stderr.readline()
    while read != "began\n":
        assert read, "it ended"
        read = running.stderr.readline()


@pytest.mark.parametrize(
    "factory", ["loops", "loops_over_what_we_look_at", "loops_over_torch", "asks"]
)
def test_the_first_interrupt_by_the_user_ends_a_call_without_an_end(
    folder: Path, factory: str
) -> None:
    with begun(folder, factory) as running:
        running.send_signal(signal.SIGINT)
        running.wait(timeout=600)  # and its stdin stays open
        out, errors = running.communicate()
    assert (running.returncode, out, errors) == (130, "", "")


def test_the_second_interrupt_by_the_user_ends_the_command_whatever_the_code_makes_of_it(
    folder: Path,
) -> None:
    with begun(folder, "never_lets_go") as running:
        running.send_signal(signal.SIGINT)
        wait_for_beginning(running)  # it was heard, and swallowed
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=600)
    assert (running.returncode, out) == (130, "")


def test_a_command_that_is_told_to_end_ends_with_the_status_of_that_signal(folder: Path) -> None:
    with begun(folder, "loops") as running:
        running.terminate()
        out, errors = running.communicate(timeout=600)
    assert (running.returncode, out, errors) == (143, "", "")


def test_the_command_says_and_returns_what_it_was_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def answered(target: str, *, as_json: bool, gpus: int) -> Answer:
        asked.append((target, as_json, gpus))
        return Answer(3, "a report\n", "an error\n")

    monkeypatch.setattr(apart, "answered_apart", answered)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", "a:b", "--gpus", "2"])
    assert (caught.value.code, asked) == (3, [("a:b", False, 2)])
    assert tuple(capsys.readouterr()) == ("a report\n", "an error\n")


@pytest.mark.parametrize(
    ("returned", "how", "remedy"),
    [
        (0, "left with status 0", "calls exit or _exit"),
        (-signal.SIGABRT, "was ended by SIGABRT", "C code crashed"),
        (-signal.SIGPROF, "was ended by SIGPROF", "set no timer"),
        (-signal.SIGKILL, "was ended by SIGKILL", "where memory is short"),
        (-signal.SIGUSR1, "was ended by SIGUSR1", "sends this signal"),
        (-40, "was ended by signal 40", "sends this signal"),
    ],
)
def test_how_a_process_ended_says_what_to_do_about_it(returned: int, how: str, remedy: str) -> None:
    error = ended_without_an_answer(returned)
    assert str(error.args[0]).endswith(how)
    assert remedy in error.remedy
    assert error.code == "OST7056"


def test_nothing_is_left_behind_of_an_answer(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(folder)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert answered_apart("no_such:thing", as_json=False, gpus=1).status == 2
    assert list(temporary.iterdir()) == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
