"""JSON that is nested without end is a file like any other that cannot be read: one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.doctor.baseline import read_baseline
from ostinato.doctor.evidence import from_json
from ostinato.doctor.lint.baseline import read_baseline as read_lint_baseline
from ostinato.doctor.trace import read_trace
from ostinato.errors import UsageError

DEEP = "[" * 100_000


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    file = tmp_path / "deep.json"
    file.write_text(DEEP, encoding="utf-8")
    return file


def test_a_trace(deep: Path) -> None:
    with pytest.raises(UsageError, match="nested too deep") as caught:
        read_trace(deep)
    assert caught.value.code == "OST7061"


def test_a_trace_with_one_deep_event_keeps_the_events_before_it(tmp_path: Path) -> None:
    events = [f'{{"ph":"X","cat":"cpu_op","name":"aten::add","ts":{n},"dur":1}}' for n in range(9)]
    file = tmp_path / "trace.json"
    nested = '{"args":' + "[" * 50_000 + "]" * 50_000 + "}"
    file.write_text('{"traceEvents":[' + ",".join([*events, nested]) + "]}", encoding="utf-8")
    problems = read_trace(file).problems
    assert any("after 9 events: it is nested too deep" in each for each in problems)


def test_evidence_a_report_and_a_baseline_of_the_lint(deep: Path) -> None:
    with pytest.raises(UsageError) as evidence:
        from_json(DEEP)
    with pytest.raises(UsageError) as report:
        read_baseline(deep)
    with pytest.raises(UsageError) as baseline:
        read_lint_baseline(deep)
    codes = [each.value.code for each in (evidence, report, baseline)]
    assert codes == ["OST7020", "OST7026", "OST7003"]
