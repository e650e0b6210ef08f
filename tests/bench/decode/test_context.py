"""A batch of long rows, run whole at toy sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.scripts import script as loaded
from ostinato.bench.decode import context
from ostinato.bench.decode.context import ContextOptions, run_context
from ostinato.bench.decode.reading import ContextResult
from ostinato.bench.decode.rows import KernelTime
from ostinato.errors import UsageError

TOY: dict[str, Any] = {
    "model": "smollm2-135m",
    "device": "cpu",
    "batch": 3,
    "short": 5,
    "context": 40,
    "steps": 6,
    "profiled": 2,
    "spare": 60,
    "is_tiny": True,
}


@pytest.fixture
def script(repository: Path) -> Iterator[ModuleType]:
    with loaded(repository, "long_context") as module:
        yield module


def run(**options: Any) -> list[ContextResult]:
    """Return what was saved, one result after the other."""
    saved: list[ContextResult] = []
    last = run_context(ContextOptions(**TOY | options), tell=lambda _: None, save=saved.append)
    assert saved[-1] == last
    return saved


def test_rows_of_both_lengths_are_measured_and_told_as_soon_as_they_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(wait: Any) -> tuple[KernelTime, ...]:
        wait()
        return (KernelTime("_decode", 4.0, 10.0), KernelTime("_qkv", 4.0, 99.0))

    monkeypatch.setattr(context, "steps_while", seen)
    saved = run()
    assert [(each.short is not None, each.long is not None) for each in saved] == [
        (True, False),
        (True, False),
        (True, True),
        (True, True),
    ]
    short, long = saved[-1].short, saved[-1].long
    assert short is not None
    assert long is not None
    for row, prompt in ((short, 5), (long, 40)):
        assert (row.error, row.steps >= 6, row.rows_per_step, row.preemptions) == ("", True, 3, 0)
        assert row.ms is not None
        assert row.ms > 0
        # Two layers of two heads of 16 numbers of four bytes, keys and values.
        keys = row.kv_bytes / (2 * 2 * 2 * 16 * 4)
        assert 3 * prompt < keys < 3 * (prompt + row.before + row.steps)
        assert (row.attention_us, row.attention_runs) == (2.5, 4.0)
    assert saved[2].long is not None
    assert saved[2].long.attention_us is None


def test_rows_that_are_done_too_early_are_an_error_that_says_so() -> None:
    # The first row's answer is whole before the last prompt has been taken in.
    saved = run(steps=2, profiled=1, spare=2, engine={"prefill_tokens": 4})
    assert saved[-1].long is not None
    assert saved[-1].long.ms is None
    assert "allow more spare ones" in saved[-1].long.error


def test_time_that_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = run(budget_s=0.0)
    for row in (saved[-1].short, saved[-1].long):
        assert row is not None
        assert row.ms is None
        assert row.error.startswith("TimeoutError: not before every row has joined were 0 s over;")


def test_an_engine_that_cannot_be_made_is_told() -> None:
    (only,) = run(engine={"attention": "none such"})
    assert only.long is not None
    assert "none such" in only.long.error


@pytest.mark.parametrize("options", [{"model": "gpt5"}, {"batch": 0}, {"steps": 0}])
def test_what_cannot_be_measured_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        ContextOptions(**TOY | options)
    assert caught.value.code == "OST4021"


def test_the_script_writes_what_it_prints(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "context.json"
    assert script.main([str(out), "--tiny", "--device", "cpu", "--steps", "5"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown.splitlines()[-1]) == json.loads(out.read_text())
    assert "3 rows of 70 tokens" in shown


def test_the_script_fails_where_nothing_was_measured(script: ModuleType, tmp_path: Path) -> None:
    words = [str(tmp_path / "out.json"), "--tiny", "--device", "cpu", "--budget-s", "0"]
    assert script.main(words) == 1
