"""A file of prompts shows how far it is by its tokens, long before the first answer is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.cli import file_progress
from ostinato.cli.file_asking import Asking
from ostinato.cli.file_progress import Standing, showing
from ostinato.cli.prompt_file import PromptLine
from ostinato.errors import OstinatoError
from ostinato.llm.params import SamplingParams
from ostinato.llm.refusals import QueueFull

NOTHING = Standing(
    lines=4, answered=0, tokens=0, coming=0, most_coming=40, running=0, waiting=4, seconds=0.0
)


def test_the_share_of_the_work_grows_with_tokens_and_with_whole_answers() -> None:
    begun = replace(NOTHING, coming=10)
    one_whole = replace(begun, answered=1, coming=6, most_coming=30)
    shares = [each.fraction for each in (NOTHING, begun, one_whole)]
    assert shares == [0.0, 0.25, pytest.approx((1 + 3 * 0.2) / 4)]
    assert replace(NOTHING, answered=4, coming=0, most_coming=0).fraction == 1.0
    assert replace(NOTHING, coming=41).fraction == 1.0


def test_the_words_name_answers_tokens_their_rate_and_who_runs_and_waits() -> None:
    some = replace(NOTHING, answered=1, tokens=30, running=2, waiting=1, seconds=4.0)
    assert some.words == "1 of 4 answered, 30 tokens (7.5/s), 2 running, 1 waiting"
    assert "0 tokens (0.0/s)" in NOTHING.words


@pytest.fixture
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_terminal")
def test_a_log_gets_a_line_now_and_then_and_stdout_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    with showing(clock=lambda: now[0]) as told:
        for now[0], answered in ((0.0, 0), (9.9, 1), (10.0, 2), (19.9, 3), (31.0, 4)):
            told(replace(NOTHING, answered=answered))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert [line.split(" answered")[0] for line in shown.err.splitlines()] == ["2 of 4", "4 of 4"]


@pytest.mark.usefixtures("_no_terminal")
def test_a_log_that_takes_nothing_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(file_progress.typer, "echo", gone)
    now = iter((0.0, 20.0, 20.0))
    with showing(clock=lambda: next(now)) as told:
        told(NOTHING)


def test_a_terminal_gets_a_bar_with_the_words(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with showing() as told:
        told(replace(NOTHING, answered=3, tokens=7))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "3 of 4 answered, 7 tokens" in shown.err


@dataclass
class PretendStream:
    """An answer of two tokens, one more of which has come at each look."""

    new_tokens: int = 0
    is_cancelled: bool = False

    def result(self, timeout: float) -> Any:
        self.new_tokens += 1
        if self.new_tokens < 3:
            raise TimeoutError
        self.new_tokens = 2
        return SimpleNamespace(choices=[SimpleNamespace(token_ids=(1, 2))])

    def cancel(self) -> None:
        self.is_cancelled = True


ENGINE: Any = SimpleNamespace(
    counts=lambda: SimpleNamespace(scheduler=SimpleNamespace(running=2, waiting=1))
)


def lines(count: int) -> list[PromptLine]:
    params = SamplingParams(max_tokens=2, n=2)
    return [PromptLine(at + 1, None, "a", params, "digest") for at in range(count)]


def asking(told: list[Standing], streams: Iterator[Any], count: int = 3) -> Asking:
    def ask(line: PromptLine) -> Any:
        stream = next(streams)
        if isinstance(stream, Exception):
            raise stream
        return stream

    return Asking(ENGINE, lines(count), 5, ask=ask, told=told.append, every_s=0.0)


def test_tokens_are_told_while_the_first_answer_is_waited_for() -> None:
    told: list[Standing] = []
    streams = [PretendStream() for _ in range(3)]
    answers = asking(told, iter(streams)).answers()
    line, _ = next(answers)
    assert line.number == 1
    assert [(each.answered, each.tokens, each.coming) for each in told] == [
        (5, 1, 1), (5, 2, 2), (6, 2, 0),
    ]  # fmt: skip
    assert {(each.lines, each.running, each.waiting) for each in told} == {(8, 2, 1)}
    assert [each.most_coming for each in told] == [12, 12, 8]
    assert [line.number for line, _ in answers] == [2, 3]
    assert told[-1].answered == 8
    assert told[-1].fraction == 1.0


def full() -> QueueFull:
    return QueueFull("full", code="OST5101", remedy="wait")


def refusal() -> OstinatoError:
    return OstinatoError("no", code="OST5002", remedy="shorten")


def test_a_full_queue_is_waited_for_and_a_refused_line_keeps_its_place() -> None:
    told: list[Standing] = []
    came = [PretendStream(), full(), refusal(), PretendStream()]
    found = list(asking(told, iter(came)).answers())
    assert [line.number for line, _ in found] == [1, 2, 3]
    assert [isinstance(answer, OstinatoError) for _, answer in found] == [False, True, False]
    assert [each.waiting for each in told][:2] == [3, 3]  # one in the engine, two not asked yet


def test_a_queue_that_others_have_filled_refuses_the_line_and_not_the_run() -> None:
    found = list(asking([], iter([full()]), count=1).answers())
    assert [(line.number, type(answer)) for line, answer in found] == [(1, QueueFull)]


def test_whoever_stops_reading_cancels_what_is_at_work() -> None:
    streams = [PretendStream() for _ in range(3)]
    answers = asking([], iter(streams)).answers()
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert [stream.is_cancelled for stream in streams] == [False, True, True]
