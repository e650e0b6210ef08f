"""An interrupt that found the runtime's own code at work is sent again until it is heard."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from ostinato.doctor.check import pressing
from ostinato.doctor.check.interrupted import Pressed, Telling, interrupts_are_told
from ostinato.doctor.check.pressing import Pressing, handlers_of_interrupts
from ostinato.graphs.interrupts import signals_wait


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """Press once, and let `hear` stand for the main thread that gets the signals."""

    def pressed(hear: Callable[[int], None]) -> None:
        times: list[int] = []

        def send(thread: int, number: int) -> None:
            times.append(number)
            assert len(times) <= 3, "it goes on for ever"
            assert thread == threading.main_thread().ident
            hear(number)

        monkeypatch.setattr(pressing, "_AGAIN_S", 0.0)
        monkeypatch.setattr(pressing, "_send", send)
        pipe, ours = os.pipe()
        os.write(ours, b"^")
        os.close(ours)
        Pressing(pipe).run()
        os.close(pipe)

    return pressed


def outermost() -> Telling:
    return [each for each in handlers_of_interrupts() if isinstance(each, Telling)][-1]


def test_it_is_sent_until_it_is_heard_and_no_longer(
    press: Callable[[Callable[[int], None]], None],
) -> None:
    sent: list[int] = []

    def hear(number: int) -> None:
        sent.append(number)
        if len(sent) == 3:  # the others found our own code at work
            outermost().told = Pressed()

    with pytest.raises(Pressed), interrupts_are_told(), signals_wait(), interrupts_are_told():
        press(hear)
    assert sent == [signal.SIGINT] * 3


def test_one_that_was_heard_at_once_is_not_sent_again(
    press: Callable[[Callable[[int], None]], None],
) -> None:
    sent: list[int] = []

    def heard_before() -> None:
        outermost().told = Pressed()
        press(sent.append)

    with pytest.raises(Pressed), interrupts_are_told():
        heard_before()
    assert sent == []


def test_a_handler_of_the_programs_own_hears_of_one_press_once(
    press: Callable[[Callable[[int], None]], None],
) -> None:
    sent: list[int] = []
    with interrupts_are_told():
        ours = signal.signal(signal.SIGINT, lambda number, frame: None)
        press(sent.append)
        signal.signal(signal.SIGINT, ours)
    assert sent == []


def test_the_handlers_are_told_in_order_down_to_the_programs_own() -> None:
    with interrupts_are_told(), signals_wait(), interrupts_are_told():
        kinds = [type(each).__name__ for each in handlers_of_interrupts()]
        *_, last = handlers_of_interrupts()
    assert kinds[:1] + kinds[2:] == [
        "Telling",
        "Telling",
        type(signal.default_int_handler).__name__,
    ]
    assert last is signal.default_int_handler
