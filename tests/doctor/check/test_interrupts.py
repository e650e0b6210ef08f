"""Who interrupted a check is told apart: the user who pressed ^C, or the code that is checked.

From outside comes what C raises here: the process gets the signal, and no Python was asked.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ostinato import cli
from ostinato.doctor.check import apart
from ostinato.doctor.check.answering import answer
from ostinato.doctor.check.interrupted import Pressed
from ostinato.doctor.check.line import is_raised_by_user
from ostinato.doctor.check.run import check
from ostinato.doctor.check.verdict import Verdict
from ostinato.errors import UsageError

pytestmark = pytest.mark.usefixtures("handlers_stay")


@pytest.fixture
def handlers_stay() -> object:
    """Python's own handler, whatever the tests were started from; and nobody leaves another."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


def press() -> None:
    """Send this process what a terminal sends for ^C, and let Python notice."""
    ctypes.CDLL(None)["raise"](int(signal.SIGINT))
    for _ in range(1000):
        pass


def made(step: object) -> tuple[object, Tensor]:
    return step, torch.ones(2, device="cuda")


# fmt: off
def in_one_line(x: Tensor) -> Tensor: raise KeyboardInterrupt
def behind_a_condition(x: Tensor) -> Tensor:
    if x.shape[0] == 2: raise KeyboardInterrupt("mine")  # noqa: E701
    return x
# fmt: on


def thrown_into_a_generator(x: Tensor) -> Tensor:
    def parts() -> object:
        yield x

    generator = parts()
    next(generator)
    return generator.throw(KeyboardInterrupt)


def while_another_error_is_handled(x: Tensor) -> Tensor:
    try:
        return x[5, 5]
    except IndexError:
        raise KeyboardInterrupt from None


def by_a_library(x: Tensor) -> Tensor:
    sys.modules["a_library"].interrupt()
    return x


def in_a_loop_of_events(x: Tensor) -> Tensor:
    async def main() -> Tensor:
        raise KeyboardInterrupt

    return asyncio.run(main())


OWN = [
    in_one_line,
    behind_a_condition,
    thrown_into_a_generator,
    while_another_error_is_handled,
    by_a_library,
    in_a_loop_of_events,
]


@pytest.mark.parametrize("step", OWN, ids=lambda each: each.__name__)
def test_an_interrupt_that_the_code_raises_is_an_error_of_the_call(
    step: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = type(sys)("a_library")
    path = Path(traceback.__file__).with_name("a_library.py")  # as one of Python's own
    exec(compile("def interrupt(): raise KeyboardInterrupt", path, "exec"), library.__dict__)
    monkeypatch.setitem(sys.modules, "a_library", library)
    with pytest.raises(UsageError, match=r"fails by itself.*KeyboardInterrupt") as caught:
        check(lambda: made(step))
    assert caught.value.code == "OST7054"


def as_it_came() -> None:
    press()


def swallowed() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        press()


def swallowed_for_an_exit() -> None:
    try:
        press()
    except KeyboardInterrupt:
        raise SystemExit(0) from None


def taken_for_another_error() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        press()
    raise ValueError("no weights") from caught.value


def in_a_group() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        press()
    raise BaseExceptionGroup("of tasks", [ValueError(), caught.value])


@pytest.mark.parametrize(
    "interrupt",
    [as_it_came, swallowed, swallowed_for_an_exit, taken_for_another_error, in_a_group],
    ids=lambda each: each.__name__,
)
def test_an_interrupt_by_the_user_ends_the_check_whatever_the_code_makes_of_it(
    interrupt: Callable[[], None],
) -> None:
    def step(x: Tensor) -> Tensor:
        interrupt()
        return x

    for factory in (lambda: made(step), lambda: step(torch.ones(2))):
        with pytest.raises(Pressed):
            check(factory)


def test_a_user_who_interrupts_a_loop_of_events_ends_the_check() -> None:
    async def main() -> None:
        press()
        await asyncio.sleep(0)

    def step(x: Tensor) -> Tensor:
        asyncio.run(main())
        return x

    with pytest.raises(Pressed):
        check(lambda: made(step))


SELF = {
    "os.kill": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "os.kill of the group": lambda: os.kill(0, signal.SIGKILL),
    "os.kill of the group by its number": lambda: os.kill(-os.getpgrp(), signal.SIGKILL),
    "os.killpg": lambda: os.killpg(os.getpgrp(), signal.SIGINT),
    "signal.raise_signal": lambda: signal.raise_signal(signal.SIGINT),
    "signal.pthread_kill": lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT),
    "_thread.interrupt_main": lambda: _thread.interrupt_main(),
    "os.abort": lambda: os.abort(),
}


@pytest.mark.parametrize("name", SELF)
def test_a_signal_of_the_code_to_its_own_process_is_its_end_and_not_the_checks(name: str) -> None:
    def step(x: Tensor) -> Tensor:
        SELF[name]()
        return x

    said = name.split()[0]
    with pytest.raises(UsageError, match=f"ProcessEnd: {said}\\(") as caught:
        check(lambda: made(step))
    assert caught.value.code == "OST7054"


def test_signals_that_end_nobody_are_sent() -> None:
    heard: list[int] = []

    def step(x: Tensor) -> Tensor:
        os.kill(os.getpid(), 0)
        os.kill(os.getpid(), signal.SIGWINCH)
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(ProcessLookupError):
            os.kill(2**22 + 5, signal.SIGTERM)
        with pytest.raises(OSError, match="Invalid argument"):
            os.kill(os.getpid(), 999)
        return x * 2

    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        assert check(lambda: made(step)).verdict is Verdict.CAPTURABLE
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard


ENDS = {
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "import asyncio; raise asyncio.CancelledError('late')": "CancelledError: late",
    "raise GeneratorExit": "GeneratorExit",
    "raise BaseException('odd')": "BaseException: odd",
}


@pytest.mark.parametrize("ends", ENDS)
def test_whatever_a_module_or_a_factory_raises_is_no_verdict(
    ends: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "raising_module.py").write_text(ends, "utf-8")
    (tmp_path / "raising_factory.py").write_text(f"def make(): {ends}", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apart, "answered_apart", answer)
    for name in ("raising_module", "raising_factory"):
        with pytest.raises(SystemExit) as caught:
            cli.main(["check", f"{name}:make"])
        said = capsys.readouterr().err
        assert caught.value.code == 2
        assert "OST7052" in said
        assert ENDS[ends] in said
        sys.modules.pop(name, None)
    sys.path.remove(str(tmp_path))


def test_an_interrupt_by_the_user_has_the_status_that_a_shell_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    press_it = f"import ctypes; ctypes.CDLL(None)['raise']({int(signal.SIGINT)}); list(range(9))"
    (tmp_path / "pressed_module.py").write_text(f"def make():\n    {press_it}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apart, "answered_apart", answer)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", "pressed_module:make"])
    assert caught.value.code == 130
    sys.path.remove(str(tmp_path))


def test_a_check_in_another_thread_leaves_the_handler_alone() -> None:
    found: list[object] = []

    def look() -> None:
        found.append(check(lambda: made(lambda x: x * 2)).verdict)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [Verdict.CAPTURABLE]


@pytest.mark.parametrize(
    ("source", "is_users"),
    [
        ("raise ValueError", True),
        ("if 1: raise ValueError", True),
        ("x = 1; assert x == 2, 'no'", True),
        ("raise ValueError(\n    'long',\n)", True),
        ("raised = int('none')", False),
        ("assert int('none')", False),
        ("try:\n    int('none')\nfinally:\n    pass", False),
    ],
)
def test_who_raised_is_told_by_the_instruction_and_not_by_the_words(
    source: str, is_users: bool, tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(source, "utf-8")
    with pytest.raises((ValueError, AssertionError)) as caught:
        exec(compile(source, str(path), "exec"), {})
    assert is_raised_by_user(caught.value) is is_users


def in_a_wait() -> None:
    press()
    time.sleep(0)


def in_a_queue() -> None:
    waiting: queue.Queue[None] = queue.Queue()
    with contextlib.suppress(queue.Empty):
        waiting.get(block=False)
    press()


def past_whoever_catches_errors() -> None:
    with contextlib.suppress(Exception):
        press()


@pytest.mark.parametrize(
    "looped",
    [in_a_wait, in_a_queue, past_whoever_catches_errors],
    ids=lambda each: each.__name__,
)
def test_an_interrupt_by_the_user_stops_code_that_makes_no_more_calls_of_torch(
    looped: Callable[[], None],
) -> None:
    rounds: list[int] = []

    def step(x: Tensor) -> Tensor:
        for each in range(100):  # one without an end would hang here where it should fail
            rounds.append(each)
            looped()
        return x

    with pytest.raises(Pressed):
        check(lambda: made(step))
    assert rounds == [0]


OWN_WAYS = {  # and none that reaches who started the tests
    name: SELF[name]
    for name in ("signal.raise_signal", "signal.pthread_kill", "_thread.interrupt_main")
} | {"os.kill": lambda: os.kill(os.getpid(), signal.SIGINT)}


@pytest.mark.parametrize("name", OWN_WAYS)
@pytest.mark.parametrize("is_set_by_the_call", [True, False])
def test_an_interrupt_to_oneself_that_the_program_handles_is_sent(
    name: str, is_set_by_the_call: bool
) -> None:
    heard: list[int] = []

    def note(number: int, _: object) -> None:
        heard.append(number)

    def step(x: Tensor) -> Tensor:
        if is_set_by_the_call:
            signal.signal(signal.SIGINT, note)
        OWN_WAYS[name]()
        assert heard, "handled before the call returns"
        return x * 2

    def factory() -> object:
        if not is_set_by_the_call:
            signal.signal(signal.SIGINT, note)
        return made(step)

    # The call came to its end; what stands in the way is the list that the handler fills.
    assert check(factory).reason == "python-side-effect"


def test_an_interrupt_to_oneself_for_pythons_own_handler_is_the_end() -> None:
    def step(x: Tensor) -> Tensor:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)
        return x

    with pytest.raises(UsageError, match=r"ProcessEnd: signal.raise_signal\(SIGINT\)"):
        check(lambda: made(step))
