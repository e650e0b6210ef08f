"""A run that asks for files, processes, threads or its callers is not recorded: answers change."""

from __future__ import annotations

import glob
import inspect
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
HERE = Path(__file__)
ARRAY = "array.npy"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / ARRAY, np.ones(1, np.float32))
    (tmp_path / "numbers.txt").write_text("1 2")
    with torch.no_grad():
        yield


ASKED: dict[str, Callable[[], object]] = {
    "np.load": lambda: np.load(ARRAY),
    "np.loadtxt": lambda: np.loadtxt("numbers.txt"),
    "os.path.exists": lambda: os.path.exists("there"),
    "os.path.isfile": lambda: os.path.isfile("there"),
    "Path.exists": lambda: Path("there").exists(),
    "Path.stat": lambda: HERE.stat(),
    "Path.iterdir": lambda: list(Path().iterdir()),
    "os.listdir": lambda: os.listdir("."),
    "os.scandir": lambda: list(os.scandir(".")),
    "glob": lambda: glob.glob("*.txt"),
    "os.getcwd": lambda: os.getcwd(),
    "Path.cwd": lambda: Path.cwd(),
    "subprocess": lambda: subprocess.check_output([sys.executable, "-c", ""]),
    "os.system": lambda: os.system("true"),
    "get_ident": lambda: threading.get_ident(),
    "current_thread": lambda: threading.current_thread().name,
    "sys._getframe": lambda: sys._getframe(0),
    "inspect.currentframe": lambda: inspect.currentframe(),
    "inspect.stack": lambda: len(inspect.stack(0)),
}


@pytest.mark.parametrize("asks", ASKED.values(), ids=list(ASKED))
def test_what_may_be_answered_otherwise_is_not_recorded(asks: Callable[[], object]) -> None:
    def step(x: Tensor) -> Tensor:
        asks()
        return x * 2

    runner = graphed(step, admit_after=1)
    assert torch.equal(runner(torch.ones(2)), torch.full((2,), 2.0))
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT, runner.last
    assert "replay" in runner.last.detail
    assert ".py:" in runner.last.detail


def _logs(x: Tensor) -> Tensor:
    logging.getLogger(__name__).warning("seen")
    return x * 2


def _warns(x: Tensor) -> Tensor:
    warnings.warn("seen", stacklevel=1)
    return x * 2


def _locks(x: Tensor) -> Tensor:
    with LOCK, CONDITION:
        return x * 2


def _stacks(x: Tensor) -> Tensor:
    return torch.stack([x, x]).sum(0)


LOCK, CONDITION = threading.RLock(), threading.Condition()


@pytest.mark.parametrize("step", [_logs, _warns, _locks, _stacks])
def test_what_python_asks_for_itself_is_no_reason(step: Callable[[Tensor], Tensor]) -> None:
    runner = graphed(step, admit_after=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner(torch.ones(2))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED, runner.last


def test_what_an_installed_package_asks_for_itself_is_not_refused(tmp_path: Path) -> None:
    """As `typing_extensions` does, which a package may import in the middle of a run."""
    place = tmp_path / "site-packages" / "asking_for_itself.py"
    place.parent.mkdir()
    source = "import sys\ndef times(x):\n    sys._getframe(1)\n    return x * 2\n"
    place.write_text(source)
    package: dict[str, Any] = {"__name__": "asking_for_itself"}
    exec(compile(source, str(place), "exec"), package)
    times = package["times"]
    g = graphed(lambda x: times(x), admit_after=1)
    for _ in range(2):
        assert torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))
    assert g.last.outcome is Outcome.REPLAYED
