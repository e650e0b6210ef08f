"""Programs in any form and of any manners run as they would by themselves, and are reported."""

from __future__ import annotations

import py_compile
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from doctor.watch.test_doctor_run import run_agent
from ostinato.doctor import keeper as keeping
from ostinato.doctor.evidence import Ending, Evidence, from_json, to_json
from ostinato.doctor.keeper import Keeper
from ostinato.doctor.running import run_as_main
from ostinato.doctor.supervise import _check
from ostinato.doctor.watching import Choices, Watch

MAIN = "import beside\nsaid = (beside.NAME, __name__)\n"


def as_folder(root: Path) -> Path:
    return root


def as_archive(root: Path) -> Path:
    archive = root.parent / "app.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("__main__.py", "beside.py"):
            file.write(root / name, name)
    return archive


def as_compiled(root: Path) -> Path:
    compiled = root / "main.pyc"
    py_compile.compile(str(root / "__main__.py"), cfile=str(compiled))
    return compiled


def as_link(root: Path) -> Path:
    link = root.parent / "linked.py"
    link.symlink_to(root / "__main__.py")
    return link


@pytest.mark.parametrize("form", [as_folder, as_archive, as_compiled, as_link])
def test_a_program_is_found_with_what_lies_beside_it_as_python_finds_it(
    form: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "app"
    root.mkdir()
    (root / "__main__.py").write_text(MAIN, "utf-8")
    (root / "beside.py").write_text("NAME = 'beside'\n", "utf-8")
    program = str(form(root))
    _check([program])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    run_as_main([program, "word"])
    del sys.modules["beside"]
    assert sys.modules["__main__"].__dict__["said"] == ("beside", "__main__")
    assert sys.argv == [program, "word"]


def test_a_status_that_is_no_plain_number_is_the_one_that_it_equals(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, "import sys\nsys.exit(True)\n")
    assert ran.status == 1
    assert "exited with status 1" in ran.report


def test_a_name_that_utf8_does_not_have_costs_neither_evidence_nor_status(tmp_path: Path) -> None:
    naming = "import threading\nthreading.current_thread().name = '\\udcff'\n"
    ran = run_agent(tmp_path, naming + "from torch import nn, ones\nnn.Linear(2, 2)(ones(1, 2))\n")
    assert (ran.status, ran.stderr) == (0, "")
    assert "1 step" in ran.report


def test_evidence_that_cannot_be_written_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(evidence: Evidence) -> str:
        if evidence.steps_seen:
            raise ValueError("not JSON compliant")
        return to_json(evidence)

    monkeypatch.setattr(keeping, "to_json", write)
    with Watch(choices=Choices(sample=False)) as watch:
        nn.Linear(2, 2)(torch.ones(1, 2))
        Keeper(watch, tmp_path / "e.json").finish(Ending.EXITED, status=3)
    left = from_json((tmp_path / "e.json").read_text("utf-8"))
    assert (left.subject.ending, left.subject.exit_status) == (Ending.EXITED, 3)
    assert "the evidence could not be written: ValueError('not JSON compliant')" in left.problems


class Odd(str):
    def __repr__(self) -> str:
        raise RuntimeError("no word")


class Taking(nn.Module):
    def forward(self, x: torch.Tensor, odd: object) -> torch.Tensor:
        return x


def test_arguments_that_raise_when_they_are_looked_at_cost_no_steps() -> None:
    with Watch(choices=Choices(sample=False)) as watch:
        for _ in range(3):
            Taking()(torch.ones(1), Odd("x"))
    assert watch.evidence.steps_seen == 3
    assert not watch.evidence.problems
