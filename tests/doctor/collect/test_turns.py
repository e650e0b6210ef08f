"""The sampler gets the GIL early while nobody else wants it, and the program meets none of that."""

from __future__ import annotations

import os
import sys

import pytest

from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.turns import SHORT_S, Turns

OWN_S = 0.005


class Interpreter:
    """Keeps a switch interval as CPython does."""

    def __init__(self, seconds: float = OWN_S) -> None:
        self.seconds = seconds

    def read(self) -> float:
        return self.seconds

    def write(self, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError("switch interval must be strictly positive")
        self.seconds = seconds


def turns_of(interpreter: Interpreter) -> Turns:
    return Turns(interpreter.read, interpreter.write)


def test_it_is_short_while_one_thread_wants_the_gil_and_nobody_reads_it_so() -> None:
    interpreter = Interpreter()
    turns = turns_of(interpreter)
    turns.after_look(1)
    assert interpreter.seconds == SHORT_S
    assert turns.read() == OWN_S
    turns.give_back()
    assert interpreter.seconds == OWN_S


def test_two_threads_take_turns_as_they_would_and_for_a_while_after() -> None:
    interpreter = Interpreter()
    turns = turns_of(interpreter)
    turns.after_look(1)
    turns.after_look(2)
    assert interpreter.seconds == OWN_S
    turns.after_look(1)
    assert interpreter.seconds == OWN_S
    for _ in range(30):
        turns.after_look(1)
    assert interpreter.seconds == SHORT_S


def test_what_the_program_sets_is_never_touched_again() -> None:
    interpreter = Interpreter()
    turns = turns_of(interpreter)
    turns.after_look(1)
    turns.choose(0.1)
    for _ in range(40):
        turns.after_look(1)
    assert (interpreter.seconds, turns.read()) == (0.1, 0.1)
    turns.give_back()
    assert interpreter.seconds == 0.1


def test_what_it_sets_while_the_sampler_shortens_it_counts() -> None:
    interpreter = Interpreter()
    late: list[Turns] = []

    def write(seconds: float) -> None:
        if late and seconds == SHORT_S:  # the program's thread came first
            late.pop().choose(0.1)
        interpreter.write(seconds)

    turns = Turns(interpreter.read, write)
    late.append(turns)
    turns.after_look(1)
    assert (interpreter.seconds, turns.read()) == (0.1, 0.1)


def test_what_the_interpreter_refuses_changes_nothing() -> None:
    interpreter = Interpreter()
    turns = turns_of(interpreter)
    turns.after_look(1)
    with pytest.raises(ValueError, match="strictly positive"):
        turns.choose(-1.0)
    assert turns.read() == OWN_S
    turns.give_back()
    assert interpreter.seconds == OWN_S


def test_one_that_is_shorter_still_stays() -> None:
    interpreter = Interpreter(1e-5)
    turns_of(interpreter).after_look(0)
    assert interpreter.seconds == 1e-5


@pytest.mark.parametrize(
    ("wanting", "late_s", "tells"),
    [
        (1, 0.0001, True),  # nobody held it
        (1, 0.02, True),  # its holder was asked, and let go at that line
        (2, 0.0001, True),
        (2, 0.002, False),  # somebody let go on the way
        (2, 0.006, True),
    ],
)
def test_a_look_tells_the_line_at_once_or_once_it_has_asked(
    wanting: int, late_s: float, tells: bool
) -> None:
    turns = turns_of(Interpreter())
    turns.after_look(wanting)
    assert turns.tells_the_line(late_s) is tells


def test_the_program_reads_and_sets_its_own_and_a_child_has_it_back() -> None:
    before = sys.getswitchinterval()
    patches, turns = Patches(), Turns()
    turns.start(patches)
    try:
        turns.after_look(1)
        assert turns._read() == pytest.approx(min(SHORT_S, before))
        assert sys.getswitchinterval() == before
        child = os.fork()
        if not child:
            os._exit(int(turns._read() != before))
        assert os.waitpid(child, 0)[1] == 0
        sys.setswitchinterval(0.25)
        assert turns._read() == sys.getswitchinterval() == 0.25
    finally:
        turns.give_back()
        patches.undo()
        sys.setswitchinterval(before)
    assert sys.getswitchinterval() == before
