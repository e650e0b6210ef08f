"""Printing, logging and clocks are told of once; files and foreign randomness are refused."""

from __future__ import annotations

import datetime
import gc
import importlib.abc
import logging
import os
import pathlib
import random
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import OstinatoWarning, Outcome, Reason, graphed
from ostinato.graphs.observe_python import may_act

logger = logging.getLogger("a user's")
X = torch.ones(2)
OF_THE_SYSTEM = random.SystemRandom()
draw_of_the_system = OF_THE_SYSTEM.random


def prints(x: Tensor) -> Tensor:
    print("hello")  # noqa: T201
    return x * 2


def writes_to_the_terminal(x: Tensor) -> Tensor:
    sys.stdout.write("hello")
    return x * 2


def logs(x: Tensor) -> Tensor:
    logger.warning("hello")
    return x * 2


def logs_through_the_module(x: Tensor) -> Tensor:
    logging.error("hello")
    return x * 2


def reads_a_clock(x: Tensor) -> Tensor:
    return x * (time.perf_counter() > 0)


def reads_the_date(x: Tensor) -> Tensor:
    return x * (datetime.datetime.now().year > 0)


def opens_a_file(x: Tensor) -> Tensor:
    with open(__file__) as text:
        return x * len(text.read(3))


def reads_a_path(x: Tensor) -> Tensor:
    return x * len(pathlib.Path(__file__).read_text(encoding="utf-8")[:3])


def draws_from_the_system(x: Tensor) -> Tensor:
    return x * os.urandom(1)[0]


def draws_from_a_held_one(x: Tensor) -> Tensor:
    return x * OF_THE_SYSTEM.random()


def draws_by_a_kept_method(x: Tensor) -> Tensor:
    return x * draw_of_the_system()


def makes_a_name(x: Tensor) -> Tensor:
    return x * len(str(uuid.uuid4()))


def _warned(fn: Callable[..., Any]) -> list[warnings.WarningMessage]:
    runner = graphed(fn, admit_after=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        runner(X)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED, runner.last
    return [each for each in caught if issubclass(each.category, OstinatoWarning)]


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (prints, "prints"),
        (writes_to_the_terminal, "prints"),
        (logs, "logs"),
        (logs_through_the_module, "logs"),
        (reads_a_clock, "reads the clock"),
        (reads_the_date, "reads the clock"),
    ],
)
def test_what_no_replay_repeats_is_told_of_with_its_line(
    fn: Callable[..., Any], words: str
) -> None:
    (warning,) = _warned(fn)
    assert words in str(warning.message)
    assert warning.filename == __file__
    assert warning.lineno == fn.__code__.co_firstlineno + 1
    assert not _warned(fn), "told twice"


def test_a_log_record_that_is_not_wanted_and_a_branch_not_taken_are_not_told_of() -> None:
    def quiet(x: Tensor) -> Tensor:
        logger.debug("hello")
        if x.shape[0] > 100:
            print("large")  # noqa: T201
        return x * 2

    assert not _warned(quiet)


@pytest.mark.parametrize(
    "fn",
    [
        opens_a_file, reads_a_path, makes_a_name,
        draws_from_the_system, draws_from_a_held_one, draws_by_a_kept_method,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
def test_files_and_foreign_randomness_are_refused_with_their_line(fn: Callable[..., Any]) -> None:
    runner = graphed(fn, admit_after=1)
    runner(X)
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert "test_observe_python.py:" in runner.last.detail


def test_a_generator_of_the_system_that_does_not_draw_costs_no_recording() -> None:
    def may_draw(x: Tensor) -> Tensor:
        return x * (OF_THE_SYSTEM.random() if x.shape[0] > 100 else 2)

    assert not _warned(may_draw)


def test_the_names_that_triton_draws_for_what_it_compiles_are_no_side_effect() -> None:
    compiler: dict[str, Any] = {"__name__": "triton.runtime.cache", "uuid": uuid}
    exec("def put():\n    return str(uuid.uuid4())", compiler)  # its module is Triton's

    def launches(x: Tensor) -> Tensor:
        compiler["put"]()
        return x * 2

    assert not _warned(launches)


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_the_call_is_answered_all_the_same() -> None:
    def says(x: Tensor) -> Tensor:
        print("once more")  # noqa: T201
        return x * 2

    runner = graphed(says, admit_after=1)
    assert torch.equal(runner(X), X * 2)
    assert runner.last is not None
    assert runner.last.reason is Reason.CAPTURE_ERROR
    assert "prints, and no replay does" in runner.last.detail


def test_a_profiler_of_the_users_keeps_its_hook() -> None:
    def hook(*_: Any) -> None: ...

    def says(x: Tensor) -> Tensor:
        print("unseen")  # noqa: T201
        return x * 2

    sys.setprofile(hook)
    try:
        assert not _warned(says)
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)


def test_the_hook_is_gone_after_a_recording() -> None:
    _warned(logs)
    assert sys.getprofile() is None


def test_code_that_names_nothing_of_the_kind_is_not_watched() -> None:
    assert may_act({"print", "relu"})
    assert not may_act({"relu", "shape"})


def test_what_runs_because_garbage_is_collected_is_not_the_steps_doing() -> None:
    def on_garbage(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    def collects(x: Tensor) -> Tensor:
        gc.collect()
        if x.shape[0] > 100:
            print("large")  # noqa: T201
        return x * 2

    gc.callbacks.append(on_garbage)
    try:
        assert not _warned(collects)
    finally:
        gc.callbacks.remove(on_garbage)


class OpensWhatIsImported(importlib.abc.MetaPathFinder):
    """Looks at source files before they are imported, as tools do that rewrite or trace them."""

    def find_spec(self, *_: Any) -> None:
        open(__file__).close()


def test_a_first_import_in_the_run_is_not_the_steps_doing_even_where_a_tool_watches_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "comes_late_to_a_step.py").write_text("print('imported')\nBY = 3.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "comes_late_to_a_step", raising=False)
    monkeypatch.setattr(sys, "meta_path", [OpensWhatIsImported(), *sys.meta_path])

    def imports(x: Tensor) -> Tensor:
        import comes_late_to_a_step  # type: ignore[import-not-found]

        if x.shape[0] > 100:
            print("large")  # noqa: T201
        return x * comes_late_to_a_step.BY

    assert not _warned(imports)


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
def test_a_file_that_is_opened_after_an_import_is_refused_all_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "comes_before_a_file.py").write_text("BY = 3.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "comes_before_a_file", raising=False)

    def imports_and_opens(x: Tensor) -> Tensor:
        import comes_before_a_file  # type: ignore[import-not-found]

        with open(__file__):
            return x * comes_before_a_file.BY

    runner = graphed(imports_and_opens, admit_after=1)
    runner(X)
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
