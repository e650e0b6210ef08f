"""Signals reach a program under `doctor run` as they would by itself: each of them once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

_SETTLED_S = 0.3  # in which what was heard is dealt with
HANDLED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
HANDLING = """
import signal, sys, threading

def heard(number, frame):
    if number == signal.SIGUSR2:
        wait.set()
    print(signal.Signals(number).name, flush=True)

for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, heard)
wait = threading.Event()
print("up", flush=True)
while not wait.wait(0.05):
    pass
"""
STUCK = """
import ctypes, torch
from torch import nn

model = nn.Linear(4, 4)
for _ in range(30):
    model(torch.ones(1, 4)).sum().item()
print("up", flush=True)
mutex = ctypes.create_string_buffer(64)
lock = ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
lock(mutex)  # never returns, and no signal interrupts it
"""
WAITING = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("up", flush=True)
print("got", signal.Signals(signal.sigwait({signal.SIGTERM})).name, flush=True)
time.sleep(3)  # longer than a stuck program would be given
print("closed", flush=True)
"""
COUNTING = """
import time
print("up", flush=True)
began = time.monotonic()
while time.monotonic() < began + 60:
    time.sleep(0.01)
"""
ALONE = """
import os, signal, sys, time
from ostinato.doctor.witness import Witness

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
with Witness() as witness:
    print("up", flush=True)
    for _ in range(4):
        heard = signal.sigwaitinfo({signal.SIGINT, signal.SIGTERM})
        print(witness.saw(heard.si_signo), flush=True)
"""


class Running:
    """A process in a group of its own, whose lines are read as they come."""

    def __init__(self, command: list[str], *, session: bool) -> None:
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=session,
            process_group=None if session else 0,
        )
        assert self.line() == "up"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def settle(self, number: int) -> None:
        """Wait until the last of its kind was heard: of those that wait, the kernel keeps one."""
        status = Path(f"/proc/{self.process.pid}/status")

        def waits() -> bool:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            return bool(int(lines["ShdPnd"], 16) >> (number - 1) & 1)

        wait_until(lambda: not waits())
        sleep(_SETTLED_S)

    def to_group(self, number: int) -> None:
        self.settle(number)
        os.killpg(self.process.pid, number)

    def to_it_alone(self, number: int) -> None:
        self.settle(number)
        os.kill(self.process.pid, number)

    def states(self) -> set[str]:
        """Return the states of the process and of the program that it runs."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        program, _witness = sorted(map(int, children.split()))
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in (self.process.pid, program)]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}


@contextmanager
def running(command: list[str], *, session: bool = True) -> Iterator[Running]:
    found = Running(command, session=session)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            os.killpg(found.process.pid, signal.SIGKILL)
        found.process.communicate(timeout=30)


def doctor(folder: Path, program: str) -> list[str]:
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "ostinato.cli", "doctor", "run"]
    return [*command, "--json", str(folder / "report.json"), "--", str(script)]


def wait_until(is_so: object) -> None:
    until = monotonic() + 60
    while not is_so():  # type: ignore[operator]
        assert monotonic() < until
        sleep(0.05)


def test_a_witness_tells_a_signal_to_the_group_from_one_to_a_process() -> None:
    with running([sys.executable, "-c", ALONE]) as found:
        for number in (signal.SIGINT, signal.SIGTERM):
            found.to_group(number)
            assert found.line() == "True"
            found.to_it_alone(number)
            assert found.line() == "False"


def test_a_witness_ends_with_the_process_that_it_stands_by() -> None:
    with running([sys.executable, "-c", ALONE]) as found:
        pid = found.process.pid
        witness = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        found.to_it_alone(signal.SIGKILL)
        found.process.wait(timeout=60)
        wait_until(lambda: not Path(f"/proc/{witness}/stat").exists())


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_program_gets_each_signal_once_and_is_reported(tmp_path: Path) -> None:
    with running(doctor(tmp_path, HANDLING)) as found:
        for number in HANDLED[:-1]:
            found.to_group(number)
            assert found.line() == number.name
            found.to_it_alone(number)
            assert found.line() == number.name
        found.to_group(signal.SIGUSR2)
        rest, said = found.process.communicate(timeout=60)
    assert rest == "SIGUSR2\n"
    assert found.process.returncode == 0
    assert "verdict:" in said
    assert (tmp_path / "report.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_group_ends_the_program_and_not_the_report(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running(doctor(tmp_path, COUNTING)) as found:
        found.to_group(number)
        _, said = found.process.communicate(timeout=60)
    assert found.process.returncode == 128 + number
    assert f"ended by {number.name}" in said
    assert said.count("KeyboardInterrupt\n") == (number is signal.SIGINT)
    assert (tmp_path / "report.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_program_that_is_stuck_in_a_call_ends_and_keeps_what_was_seen(tmp_path: Path) -> None:
    with running(doctor(tmp_path, STUCK)) as found:
        found.to_group(signal.SIGTERM)
        _, said = found.process.communicate(timeout=60)
    assert found.process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in said
    codes = [
        each["code"] for each in json.loads((tmp_path / "report.json").read_text())["findings"]
    ]
    assert codes == ["OST101"]


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_program_that_waits_for_a_signal_gets_it(tmp_path: Path) -> None:
    with running(doctor(tmp_path, WAITING)) as found:
        found.to_group(signal.SIGTERM)
        rest, _ = found.process.communicate(timeout=60)
    assert (found.process.returncode, rest) == (0, "got SIGTERM\nclosed\n")


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_program_stops_and_goes_on_with_the_doctor(tmp_path: Path) -> None:
    with running(doctor(tmp_path, COUNTING), session=False) as found:
        for send in (found.to_group, found.to_it_alone):
            send(signal.SIGTSTP)
            wait_until(lambda: found.states() == {"T"})
            send(signal.SIGCONT)
            wait_until(lambda: found.states() == {"S"})
