"""What a watched program shows of its errors is what Python shows without us, to the letter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor.watch.test_doctor_run import _become
from ostinato.doctor.evidence import from_json
from ostinato.doctor.hidden_frames import without_our_frames
from ostinato.doctor.waiting import python_that_runs

ERRORS = {
    "chained": """
def fails():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ValueError("no") from error
try:
    fails()
except ValueError:
    raise KeyError("later")
""",
    "no syntax": "x = 1\ny = = 2\n",
    "no syntax in what is imported": "import broken\n",
    "in a group": "raise ExceptionGroup('all', [ValueError(1), TypeError(2)])\n",
    "with its own hook": """
import sys
sys.excepthook = lambda kind, error, trace: print("hook", trace.tb_frame.f_code.co_name)
raise ValueError
""",
    "with a hook that fails": """
import sys
def hook(*words): raise TypeError("in the hook")
sys.excepthook = hook
raise ValueError("first")
""",
    "of a lock": "import threading\nthreading.Lock().release()\n",
    "text for a status": "import sys\nsys.exit('some text')\n",
    "no number for a status": "import sys\nsys.exit({'a': 1})\n",
    "a negative status": "import sys\nsys.exit(-1)\n",
    "of torch": """
import torch
class Reads(torch.nn.Module):
    def forward(self, x):
        try:
            return x.item()
        except RuntimeError as error:
            raise ValueError("no") from error
Reads()(torch.ones(3))
""",
}


def by_python(folder: Path, *program: str) -> tuple[int, str, str]:
    command = [sys.executable, *program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def by_us(folder: Path, *program: str) -> tuple[int, str, str]:
    """Run a program under the agent in a fork of this process, in that folder."""
    order = {"program": list(program), "evidence": str(folder / "e.json"), "choices": {}}
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        _become(folder, order)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, (folder / "out").read_text(), (folder / "err").read_text()


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_shown_as_python_shows_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ERRORS[name])
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert by_us(tmp_path, "program.py") == by_python(tmp_path, "program.py")


SHOWS_BY_ITSELF = """
import logging, sys, threading, traceback, torch
class Reads(torch.nn.Module):
    def forward(self, x):
        traceback.print_stack()
        return x.item()
try:
    Reads()(torch.ones(3))
except RuntimeError:
    logging.exception("lost")
    traceback.print_exc(limit=-1)
thread = threading.Thread(target=threading.Lock().release, name="its")
thread.start()
thread.join()
thread = threading.Thread(target=Reads(), args=(torch.ones(3),), name="another")
thread.start()
thread.join()
sys.exit(1 << 40)
"""


def by_a_process_of_ours(folder: Path, *program: str) -> tuple[int, str, str]:
    order = {"program": list(program), "evidence": str(folder / "e.json"), "choices": {}}
    command = python_that_runs("ostinato.doctor.agent:main", json.dumps(order))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_what_a_program_shows_by_itself_is_without_us(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SHOWS_BY_ITSELF)
    assert by_a_process_of_ours(tmp_path, "program.py") == by_python(tmp_path, "program.py")


HELPED = {
    "__main__.py": "import helper\nhelper.fails()\n",
    "helper.py": "def fails():\n    1 / 0\n",
}


def a_folder(root: Path, files: dict[str, str]) -> list[str]:
    (root / "app").mkdir()
    for name, text in files.items():
        (root / "app" / name).write_text(text)
    return ["app"]


def an_archive(root: Path, files: dict[str, str]) -> list[str]:
    with zipfile.ZipFile(root / "app.pyz", "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return ["app.pyz"]


def a_package(root: Path, files: dict[str, str]) -> list[str]:
    a_folder(root, files | {"__init__.py": "import sys\nsys.path.append('app')\n"})
    return ["-m", "app"]


@pytest.mark.parametrize("made", [a_folder, an_archive, a_package], ids=lambda made: made.__name__)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_program_of_several_files_fails_as_it_does_without_us(
    made: Callable[[Path, dict[str, str]], list[str]], is_whole: bool, tmp_path: Path
) -> None:
    files = HELPED if is_whole else {"helper.py": HELPED["helper.py"]}
    program = made(tmp_path, files)
    shown = by_us(tmp_path, *program)
    assert shown == by_python(tmp_path, *program)
    assert shown[0] == 1
    assert "__main__" in shown[2]


@pytest.mark.parametrize("module", ["no_such", "no_such.part", "errno"])
def test_a_module_that_cannot_be_run_is_told_in_pythons_words(module: str, tmp_path: Path) -> None:
    assert by_us(tmp_path, "-m", module) == by_python(tmp_path, "-m", module)


def test_a_program_has_the_names_that_python_gives_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "held: int = 1\n"
        "print({k: v for k, v in globals().items() if k not in ('__builtins__', '__loader__')})\n"
        "print(__annotations__, type(__loader__), sys.argv, sys.path[0])\n"
    )
    assert by_us(tmp_path, "program.py", "word") == by_python(tmp_path, "program.py", "word")


def test_nobodys_imports_find_what_lies_beside_the_command_or_beside_us(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "program.py").write_text("import trace\nprint(trace.CoverageResults)\n")
    done = by_a_process_of_ours(tmp_path, "apart/program.py")
    assert done == (0, "<class 'trace.CoverageResults'>\n", "")


def test_a_finding_in_an_archive_has_its_line_of_source(tmp_path: Path) -> None:
    source = "import torch\nx = torch.ones(1)\nfor _ in range(9):\n    print(x.item())\n"
    an_archive(tmp_path, {"__main__.py": source})
    assert by_us(tmp_path, "app.pyz")[0] == 0
    waits = from_json((tmp_path / "e.json").read_text()).waits
    assert {wait.place.code for wait in waits if wait.place} == {"print(x.item())"}


def test_errors_that_led_to_each_other_in_a_circle_are_walked_once() -> None:
    first, second = ValueError(), TypeError()
    first.__context__, second.__cause__ = second, first
    without_our_frames(first)
    assert (first.__traceback__, second.__traceback__) == (None, None)
