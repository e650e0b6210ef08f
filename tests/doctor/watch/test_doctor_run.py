"""`ostinato doctor run`: the program runs as by itself, and the report survives what it does."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ostinato.doctor import agent
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import from_json
from ostinato.doctor.render.text import text
from ostinato.doctor.saving import pause_s
from ostinato.doctor.supervise import read_evidence

SLOW = """
import sys
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        scale = x.abs().max().item()
        return self.layer(x) / max(scale, 1.0)

model = Model().eval()
with torch.inference_mode():
    for _ in range(30):
        model(torch.ones(2, 8))
"""
THE_LINE = 12
FORKING = """
import os
child = os.fork()
if child == 0:
    print("child", type(torch.Tensor.item).__name__, flush=True)
else:
    os.waitpid(child, 0)
    print("parent", flush=True)
"""
LATE = """
import threading, time

def late():
    time.sleep(0.2)
    print("late", flush=True)

threading.Thread(target=late).start()
"""
HANDLING = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
os.kill(os.getpid(), signal.SIGTERM)
"""


@dataclass(frozen=True)
class Ran:
    """How a program ended that the agent ran, and what the report would say."""

    status: int
    stdout: str
    stderr: str
    codes: list[str]
    report: str


def run_agent(folder: Path, program: str, *words: str) -> Ran:
    """Run a program under the agent in a fork of this process, which has torch already."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    order = {"program": [str(script), *words], "evidence": str(folder / "e.json"), "choices": {}}
    child = os.fork()
    if child == 0:
        _become(folder, order)
    _, waited = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(waited)
    status = status if status >= 0 else 128 - status
    found = diagnose(read_evidence(folder / "e.json", order["program"], status))
    return Ran(
        status=status,
        stdout=(folder / "out").read_text(),
        stderr=(folder / "err").read_text(),
        codes=[finding.code for finding in found.findings],
        report=text(found),
    )


def _become(folder: Path, order: dict[str, Any]) -> None:
    leave = os._exit
    faulthandler.disable()  # pytest's own would tell of a crash that is wanted
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.argv = ["agent", json.dumps(order)]
    status = 99
    try:
        agent.main()
    except SystemExit as error:
        status = int(error.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        leave(status)


@pytest.fixture(autouse=True)
def _forking_with_threads_is_the_point(recwarn: pytest.WarningsRecorder) -> None:
    """A process that forks while it has threads is warned of by Python 3.12."""
    import warnings

    warnings.simplefilter("ignore", DeprecationWarning)


def doctor(folder: Path, program: str, *options: str, words: tuple[str, ...] = ()) -> Any:
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    return subprocess.run(
        [
            *(sys.executable, "-m", "ostinato.cli", "doctor", "run"),
            *("--json", str(folder / "report.json"), *options, "--", str(script), *words),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
    )


def test_the_program_runs_as_by_itself(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, SLOW + "print(__name__, sys.argv[1:])", "--steps", "3")
    assert (ran.status, ran.stdout) == (0, "__main__ ['--steps', '3']\n")
    assert ran.codes == ["OST101"]


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("sys.exit(7)", 7, "exited with status 7"),
        ("sys.exit('no model')", 1, "exited with status 1"),
        ("sys.exit(300)", 44, "exited with status 44"),
        ("import os; os._exit(300)", 44, "exited with status 44"),
        ("raise RuntimeError('no more batches')", 1, "RuntimeError: no more batches"),
        ("import os; os._exit(5)", 5, "exited with status 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143, "ended by SIGTERM"),
    ],
)
def test_a_program_that_ends_badly_is_reported_all_the_same(
    tmp_path: Path, ending: str, status: int, said: str
) -> None:
    ran = run_agent(tmp_path, SLOW + ending)
    assert ran.status == status
    assert ran.codes == ["OST101"]
    assert said in ran.report


def test_the_traceback_is_that_of_the_program_alone(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, "def fail():\n    raise KeyError('weights')\n\nfail()\n")
    assert "KeyError: 'weights'" in ran.stderr
    assert 'program.py", line 4' in ran.stderr
    assert "agent.py" not in ran.stderr


def test_a_program_killed_at_once_leaves_a_report_that_says_so(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert ran.status == 128 + signal.SIGKILL
    assert "SIGKILL" in ran.report


def test_a_report_of_nothing_saved_says_so_and_promises_nothing(tmp_path: Path) -> None:
    report = diagnose(read_evidence(tmp_path / "none.json", ["program.py"], 128 + signal.SIGSEGV))
    assert report.problems == (
        "the program was ended by SIGSEGV",
        "no evidence was saved: the program ended before the first save, 0.1 s after its start",
    )


CRASHES = """
import os, signal, sys, time
from pathlib import Path
from ostinato.doctor.evidence import from_json
saved = Path(sys.argv[1])
while not saved.exists() or from_json(saved.read_text("utf-8")).steps_seen < 30:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL], ids=lambda each: each.name)
def test_a_crash_costs_what_came_after_the_last_save(
    tmp_path: Path, number: signal.Signals
) -> None:
    crash = f"os.kill(os.getpid(), {int(number)})"
    ran = run_agent(tmp_path, SLOW + CRASHES + crash, str(tmp_path / "e.json"))
    assert ran.status == 128 + number
    assert ran.codes == ["OST101"]
    said = " ".join(ran.report.split())
    assert f"ended by {number.name}; what was kept until then is reported" in said
    assert "it ended suddenly, so only its first" in said


def test_an_abort_by_python_keeps_everything(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, SLOW + "import os\nos.abort()\n")
    assert ran.status == 128 + signal.SIGABRT
    assert ran.codes == ["OST101"]
    assert "ended by SIGABRT" in ran.report
    assert "suddenly" not in ran.report


@pytest.mark.parametrize(
    ("seen_s", "cost_s", "pause"),
    [
        (0.1, 0.0001, 0.1),  # soon again
        (0.4, 0.001, 0.4),  # half may be lost
        (0.4, 0.015, 5.0),  # dear: more than three hundred times as long
        (6.0, 0.015, 6.0),
        (60.0, 0.01, 5.0),  # its share of the time
        (60.0, 0.03, 10.0),  # no further apart than that
        (60.0, 0.3, 100.0),  # but for three thousandths
    ],
)
def test_saves_are_near_each_other_at_first_and_take_three_thousandths_at_most(
    seen_s: float, cost_s: float, pause: float
) -> None:
    assert pause_s(seen_s, cost_s) == pytest.approx(pause)


def test_a_program_that_forks_is_reported_once_and_its_child_runs_unwatched(
    tmp_path: Path,
) -> None:
    ran = run_agent(tmp_path, SLOW + FORKING)
    assert (ran.status, ran.stdout) == (0, "child method_descriptor\nparent\n")
    assert ran.codes == ["OST101"]


REPLACED = """
import os
try:
    os.execv("/nowhere/program", ["program"])
except FileNotFoundError:
    print("still here", flush=True)
model(torch.ones(2, 8))
os.execvp("sh", ["sh", "-c", "exit 4"])
"""


def test_a_program_that_puts_another_in_its_place_is_reported(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, SLOW + REPLACED)
    assert (ran.status, ran.stdout) == (4, "still here\n")
    assert ran.codes == ["OST101"]
    assert "put another one in its place" in ran.report


CLOSING = """
import os
os.closerange(3, 256)
mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
model(torch.ones(2, 8))
import time
time.sleep(0.2)
[os.fstat(number) for number in mine]
print("all open", flush=True)
"""


def test_a_program_that_closes_every_file_keeps_its_own(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, SLOW + CLOSING)
    assert (ran.status, ran.stdout) == (0, "all open\n")
    assert ran.codes == ["OST101"]


WORKERS = """
import multiprocessing

if __name__ == "__main__":
    worker = multiprocessing.get_context("{}").Process(target=print, args=("worked",))
    worker.start()
    worker.join()
"""


@pytest.mark.parametrize("program", [FORKING, WORKERS.format("fork"), WORKERS.format("spawn")])
def test_processes_that_a_program_starts_are_said_not_to_be_watched(
    tmp_path: Path, program: str
) -> None:
    said = "started processes, and they were not watched"
    assert said in " ".join(run_agent(tmp_path, program).report.split())
    assert said not in " ".join(run_agent(tmp_path, "print(1)").report.split())


def test_threads_that_outlive_the_script_are_waited_for(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, LATE)
    assert (ran.status, ran.stdout) == (0, "late\n")


def test_a_signal_that_the_program_handles_is_its_own(tmp_path: Path) -> None:
    ran = run_agent(tmp_path, HANDLING)
    assert (ran.status, ran.stdout) == (0, "handled\n")


def report(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def codes(folder: Path) -> list[str]:
    return [finding["code"] for finding in report(folder)["findings"]]


def test_the_line_of_an_item_in_the_loop_is_named_with_its_cost(tmp_path: Path) -> None:
    ran = doctor(tmp_path, SLOW + "print('done', sys.argv[1:])", words=("--steps", "3"))
    assert (ran.returncode, ran.stdout) == (0, "done ['--steps', '3']\n")
    assert "OST101 host-sync-in-step" in ran.stderr
    assert "program.py:12 `scale = x.abs().max().item()`" in ran.stderr
    finding = report(tmp_path)["findings"][0]
    assert (finding["code"], finding["place"]["line"]) == ("OST101", THE_LINE)
    assert finding["cost"]["us_per_step"] > 0


def test_a_module_is_run_with_m(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    ran = subprocess.run(
        [sys.executable, "-m", "ostinato.cli", "doctor", "run", "--", "-m", "service", "x"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "__main__ ['x']\n")


def test_a_script_that_is_not_there_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ostinato.cli", "doctor", "run", "--", "nothing.py"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert ran.returncode == 2
    assert "OST7024" in ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_program_killed_later_keeps_what_was_seen(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SLOW + "print('up', flush=True)\nimport time\ntime.sleep(280)\n")
    command = [sys.executable, "-m", "ostinato.cli", "doctor", "run"]
    command += ["--json", str(tmp_path / "report.json"), "--", str(script)]
    (tmp_path / "temporary").mkdir()
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    until = time.monotonic() + 240  # a save may come before the steps
    while not any(
        from_json(saved.read_text(encoding="utf-8")).steps_seen >= 8
        for saved in tmp_path.glob("temporary/ostinato-doctor-*/evidence.json")
    ):
        assert time.monotonic() < until, "the steps were not saved meanwhile"
        time.sleep(0.1)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGKILL
    assert codes(tmp_path) == ["OST101"]
    assert "ended suddenly" in said


@pytest.mark.slow
def test_a_regression_against_the_baseline_exits_3(tmp_path: Path) -> None:
    doctor(tmp_path, SLOW.replace(".item()", "").replace("max(scale, 1.0)", "scale"))
    good = tmp_path / "good.json"
    (tmp_path / "report.json").rename(good)
    ran = doctor(tmp_path, SLOW, "--baseline", str(good), "--exit-on-regression")
    assert ran.returncode == 3
    assert "new: OST101 host-sync-in-step" in ran.stderr
