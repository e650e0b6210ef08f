"""Traces that torch.profiler wrote on a real GPU: recorded beside this test, else made here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ostinato.doctor.activity import WaitKind
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.trace import read_trace

_RECORDED = Path(__file__).parent / "recorded"
STEPS, LAYERS = 10, 24


@pytest.fixture(scope="module")
def folder(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (_RECORDED / "about.json").is_file():
        return _RECORDED
    if not torch.cuda.is_available():
        pytest.skip("no traces of a real GPU are recorded beside this test, and there is no GPU")
    made = tmp_path_factory.mktemp("traces")
    path = os.pathsep.join([str(repository / "src"), str(repository / "tests")])
    subprocess.run(
        [sys.executable, "-m", "doctor.trace.record", str(made)],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    return made


def names(evidence: Evidence) -> set[str]:
    return {finding.name for finding in diagnose(evidence).findings}


def test_a_real_eager_trace_is_bound_by_launches(folder: Path) -> None:
    found = read_trace(folder / "eager.json.gz")
    window = found.profile
    assert window is not None
    assert (window.steps, window.graph_launches) == (STEPS, 0)
    assert window.kernels >= 2 * LAYERS * STEPS
    assert window.launches >= 2 * LAYERS * STEPS
    assert "launch-bound-step" in names(found)


def test_a_real_replayed_trace_has_the_same_kernels_out_of_few_launches(folder: Path) -> None:
    eager = read_trace(folder / "eager.json.gz").profile
    found = read_trace(folder / "replayed.json.gz")
    window = found.profile
    assert eager is not None
    assert window is not None
    assert window.graph_launches == STEPS
    assert window.kernels == pytest.approx(eager.kernels, rel=0.2)
    assert sum(use.in_graphs for use in window.top) >= 0.9 * window.kernels
    assert "launch-bound-step" not in names(found)


def test_real_waits_have_their_kind_their_time_and_their_function(folder: Path) -> None:
    found = read_trace(folder / "reads.json.gz")
    kinds = {wait.kind: wait for wait in found.waits}
    assert kinds.keys() >= {WaitKind.SCALAR, WaitKind.SHAPE, WaitKind.EXPORT}
    for kind in (WaitKind.SCALAR, WaitKind.SHAPE, WaitKind.EXPORT):
        assert kinds[kind].count >= STEPS
        assert kinds[kind].on_device
        place = kinds[kind].place
        assert place is not None
        assert place.function == "reads"
    assert "host-sync-in-step" in names(found)
