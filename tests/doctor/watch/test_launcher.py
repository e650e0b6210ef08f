"""What is sent to `ostinato doctor run` reaches the program, and the program never outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.doctor.waiting import python_that_runs

UP = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""


def launch(folder: Path, program: str) -> subprocess.Popen[str]:
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    (folder / "temporary").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "ostinato.cli", "doctor", "run", "--", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder / "temporary")},
    )


def pid_of_program(running: subprocess.Popen[str]) -> int:
    assert running.stdout is not None
    return int(running.stdout.readline())


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"  # dead, and nobody has asked how


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("temporary/ostinato-doctor-*"))


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    running = launch(tmp_path, UP)
    pid = pid_of_program(running)
    yield running, pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_alone_ends_the_program_and_the_report_comes(
    launched: tuple[subprocess.Popen[str], int], number: signal.Signals, tmp_path: Path
) -> None:
    running, pid = launched
    os.kill(running.pid, number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert f"ended by {number.name}" in said
    assert not runs(pid)
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_program_whose_launcher_is_killed_ends_and_leaves_no_folder(
    launched: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    running, pid = launched
    assert len(left(tmp_path)) == 1
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    for _ in range(600):
        if not runs(pid):
            break
        time.sleep(0.1)
    assert not runs(pid)
    assert left(tmp_path) == []


PRESSED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
PRESSED_LATER = """
import os, signal
from ostinato.doctor.told_to_end import interrupts_as_python_has_them

def main():
    interrupts_as_python_has_them()
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("raised")
"""


@pytest.mark.parametrize(
    ("source", "returned", "said"),
    [(PRESSED, -signal.SIGINT, ""), (PRESSED_LATER, 0, "raised\n")],
    ids=["while we import", "while the program runs"],
)
def test_an_interrupt_shows_no_lines_of_ours(
    tmp_path: Path, source: str, returned: int, said: str
) -> None:
    (tmp_path / "pressed.py").write_text(source, encoding="utf-8")
    ran = subprocess.run(
        python_that_runs("pressed:main"),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (returned, said, "")


def test_an_interrupt_that_is_ignored_stays_so(tmp_path: Path) -> None:
    (tmp_path / "ignored.py").write_text(PRESSED + "def main(): print('went on')\n", "utf-8")
    ran = subprocess.run(
        python_that_runs("ignored:main"),
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "went on\n", "")
