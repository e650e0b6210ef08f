"""Programs that break whoever looks at them still get one answer, and never a false one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ostinato import cli
from ostinato.doctor.check import apart
from ostinato.doctor.check.answering import answer
from ostinato.doctor.check.ending import process_goes_on
from ostinato.doctor.check.line import said_place
from ostinato.doctor.check.run import check
from ostinato.doctor.raised import text_of, words_of
from ostinato.doctor.watching import Choices, Watch
from ostinato.errors import UsageError


class Unspeakable(Exception):
    """Raises when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no word")

    __repr__ = __str__


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert (text_of(Unspeakable()), words_of(Unspeakable())) == ("", "Unspeakable")
    assert words_of(ValueError("no head")) == "ValueError: no head"
    assert words_of(ValueError()) == "ValueError"


def speechless(x: Tensor) -> Tensor:
    raise Unspeakable


def speechless_after_a_read(x: Tensor) -> Tensor:
    if x.sum().item() > 0:
        raise Unspeakable
    return x


def test_errors_that_cannot_be_shown_break_no_check() -> None:
    x = torch.ones(2)
    with pytest.raises(UsageError, match="by itself, captured or not: Unspeakable at"):
        check(lambda: (speechless, x))
    with pytest.raises(UsageError, match=r"the factory raised Unspeakable at test_hostile.py:43"):
        check(lambda: speechless(x))
    checked = check(lambda: (speechless_after_a_read, x))
    assert [gap.what for gap in checked.gaps if "it raised Unspeakable" in gap.what]


def test_a_block_that_raises_an_error_without_words_raises_that_one() -> None:
    with pytest.raises(Unspeakable), Watch(choices=Choices(sample=False)) as watch:
        raise Unspeakable
    assert watch.evidence.subject.detail == "Unspeakable"


class Loading:
    """As modules that load when they are asked for anything."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"cannot load {name}")


def test_modules_that_raise_when_they_are_looked_at_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, module in {"lazy": Loading(), "slots": object(), "none": None}.items():
        monkeypatch.setitem(sys.modules, f"ostinato_tests_{name}", module)
    odd = type(sys)("odd")
    odd.__file__ = Path("odd.py")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "ostinato_tests_odd", odd)
    place = said_place("odd.py:3 `step.last = x`")
    assert place is not None
    assert (place.path, place.line) == ("odd.py", 3)


class Later:
    async def __call__(self, x: Tensor) -> Tensor:
        return x


class LaterModule(nn.Module):
    async def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("fn", [Later(), LaterModule()], ids=lambda each: type(each).__name__)
def test_what_returns_a_coroutine_is_refused_before_it_makes_one(fn: object) -> None:
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(UsageError, match="the callable is a coroutine function") as caught,
    ):
        check(lambda: (fn, torch.ones(2)))
    assert caught.value.code == "OST7051"


def test_a_forked_child_that_returns_from_the_call_gives_no_second_answer(tmp_path: Path) -> None:
    came_out = tmp_path / "came_out"
    main = os.getpid()

    def step(x: Tensor) -> Tensor:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return x * 2

    try:
        with warnings.catch_warnings(action="ignore"):
            check(lambda: (step, torch.ones(2)))
    finally:
        if os.getpid() != main:
            came_out.touch()
            os._exit(0)
    assert not came_out.exists()


NO_END = """
import torch
held = []
held.append(held)
def make():
    return (lambda x, more: x * 2), (torch.ones(2), held)
"""


def test_a_check_that_breaks_off_has_no_status_of_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no_end.py").write_text(NO_END, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(apart, "answered_apart", answer)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", "no_end:make", "--json"])
    shown = capsys.readouterr()
    assert caught.value.code == 2
    assert shown.out == ""
    assert "Traceback" in shown.err
    assert "OST7055: the check itself broke off" in shown.err


LEFT_BEHIND = {
    "for the end": "atexit.register(lambda: os._exit(0))",
    "for the end, before it was watched": "atexit.register(_exit, 0)",
    "a thread": "threading.Thread(target=outlive).start()",
}
NOT_CAPTURABLE = """
import atexit, os, threading
from os import _exit
import torch
def outlive():
    threading.main_thread().join()
    _exit(0)
{left_behind}
def make():
    return (lambda x: x[x > 0]), torch.ones(2)
def fails():
    return (lambda x: x @ x), torch.ones(2, 3)
"""


@pytest.mark.parametrize("made", [("make", 1), ("fails", 2)], ids=lambda made: made[0])
@pytest.mark.parametrize("left_behind", LEFT_BEHIND)
def test_what_a_module_leaves_behind_does_not_choose_the_status(
    tmp_path: Path, left_behind: str, made: tuple[str, int]
) -> None:
    program = NOT_CAPTURABLE.format(left_behind=LEFT_BEHIND[left_behind])
    (tmp_path / "leaves.py").write_text(program, "utf-8")
    ostinato = "from ostinato import cli; cli.main()"
    command = [sys.executable, "-c", ostinato, "check", f"leaves:{made[0]}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == made[1], done.stderr[-2000:]
    assert "NoneType" not in done.stderr  # nothing of ours is left for when modules are gone


SWALLOWED = """
from os import _exit
import torch
def make():
    def step(x):
        try:
            _exit(0)
        except BaseException:
            pass
        return x * 2
    return step, torch.ones(2)
"""


def test_an_end_that_is_asked_for_by_a_name_of_its_own_and_swallowed_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "swallowed_end.py").write_text(SWALLOWED, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(apart, "answered_apart", answer)
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", "swallowed_end:make"])
    assert caught.value.code == 2
    assert "by itself, captured or not: ProcessEnd: os._exit(0)" in capsys.readouterr().err


def test_the_innermost_of_two_blocks_hears_of_an_end_and_the_original_comes_back() -> None:
    original = os._exit
    with process_goes_on() as outer:
        kept = os._exit
        with process_goes_on() as inner, pytest.raises(SystemExit):
            kept(3)
        with pytest.raises(SystemExit):
            kept(4)
    assert ([str(end) for end in inner], [str(end) for end in outer]) == (
        ["os._exit(3)"],
        ["os._exit(4)"],
    )
    assert os._exit is original


def test_a_factory_that_ends_the_process_ends_no_check_that_python_asks_for() -> None:
    for end in (lambda: os._exit(0), lambda: os.execv("/bin/true", ["true"])):
        with pytest.raises(UsageError, match="the factory raised ProcessEnd: os") as caught:
            check(end)
        assert caught.value.code == "OST7052"


class Nameless(type):
    """A metaclass of classes that do not tell their name."""

    @property
    def __name__(cls) -> str:
        raise RuntimeError("no name")


class Hidden(nn.Module, metaclass=Nameless):
    def forward(self, x: Tensor, other: object = None) -> Tensor:
        return x * 2


class HiddenError(Exception, metaclass=Nameless):
    pass


def test_a_module_whose_class_hides_its_name_is_called_while_watched() -> None:
    model = Hidden()
    with Watch(choices=Choices(sample=False)) as watch:
        for _ in range(3):
            assert model(torch.ones(1), model).tolist() == [2.0]
    assert (watch.evidence.step_name, watch.evidence.steps_seen) == ("Hidden", 3)
    assert "Hidden" in watch.evidence.callables[0].signatures[0].text


def test_classes_that_hide_their_names_break_no_message() -> None:
    assert words_of(HiddenError("lost")) == "HiddenError: lost"
    with pytest.raises(UsageError, match="the factory returned something of type Hidden"):
        check(lambda: Hidden())


def test_what_is_replaced_while_watched_can_be_pickled_and_is_the_original_elsewhere() -> None:
    found = [torch.Tensor.item, torch.where]
    with Watch(choices=Choices(sample=False)):
        pickled = pickle.dumps([torch.Tensor.item, torch.where])
        assert pickle.loads(pickled) == [torch.Tensor.item, torch.where]
        assert torch.where is not found[1]
    assert pickle.loads(pickled) == found
