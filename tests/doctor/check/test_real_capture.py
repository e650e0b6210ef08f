"""A check on pretended tensors agrees with real captures: live on a GPU, else as recorded there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.check.library import NAMES, load

_RECORDED = Path(__file__).parent / "real_captures.json"


def _disagreements(programs: dict[str, Any]) -> list[str]:
    """Return where check, runtime and bare capture say something else than the program expects."""
    wrong: list[str] = []
    for name, found in programs.items():
        expected = load(name).expected
        if "skipped" in found:
            continue
        if "failed" in found:
            wrong.append(f"{name} failed: {found['failed']}")
            continue
        refused = bool(expected.reasons)
        told = [
            ("check", found["check"] == ("not-capturable" if refused else "capturable")),
            ("runtime", (found["runtime"] is not None) == refused),
            ("runtime's reason", not refused or found["runtime"] in expected.reasons),
            ("check's reason", not refused or found["check_reason"] in expected.reasons),
            ("raw", found["raw"] == expected.raw),
        ]
        wrong += [f"{name}: {what}: {found}" for what, agrees in told if not agrees]
    return wrong


def test_the_verdicts_recorded_on_a_gpu_are_those_that_the_programs_expect() -> None:
    if not _RECORDED.is_file():
        pytest.skip("no verdicts of a real GPU are recorded beside this test")
    recorded = json.loads(_RECORDED.read_text("utf-8"))
    assert set(recorded["programs"]) == set(NAMES)
    assert _disagreements(recorded["programs"]) == []


def test_a_disagreement_is_found() -> None:
    found = {
        "check": "capturable",
        "check_reason": None,
        "runtime": "host-sync",
        "raw": True,
    }
    assert len(_disagreements({"plain_layers": found})) == 1
    assert len(_disagreements({"boolean_mask": found})) == 4
    assert _disagreements({"plain_layers": {"skipped": "needs 2 GPUs"}}) == []
    assert len(_disagreements({"plain_layers": {"failed": "no"}})) == 1


@pytest.mark.gpu
@pytest.mark.slow
def test_a_check_agrees_with_real_captures_on_this_gpu(repository: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(repository / "src"), str(repository / "tests")])
    out = tmp_path / "verdicts.json"
    subprocess.run(
        [sys.executable, "-m", "doctor.check.real_capture", str(out)],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=280,
    )
    assert _disagreements(json.loads(out.read_text("utf-8"))["programs"]) == []
