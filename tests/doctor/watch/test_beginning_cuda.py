"""Programs that begin to use their device late, elsewhere, or in children alone, really watched.

On a GPU this is what `test_no_cuda_context.py` pretends. On a CPU the same programs show that the
plumbing holds; there is nothing to begin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ostinato
from ostinato.doctor.evidence import Evidence, from_json

SOURCE = str(Path(ostinato.__file__).parents[1])
PLACES = [SOURCE, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
# The programs run in folders of their own, where a relative path would lead elsewhere.
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in PLACES if each)}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

BEGINNING = """
import os, sys, warnings
import torch
from torch import nn

warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside other threads
device = sys.argv[1]

def steps(where, count=40):
    model = nn.Linear(8, 8).to(where).eval()
    with torch.inference_mode():
        for _ in range(count):
            model(torch.ones(2, 8, device=where)).sum().item()

def begun(where):
    print(where, "begun" if torch.cuda.is_initialized() else "not begun", flush=True)
"""
FORKED = (
    BEGINNING
    + """
steps("cpu")
for number in range(2):
    child = os.fork()
    if child == 0:
        steps(device)
        begun("child")
        os._exit(0)
    print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
begun("parent")
"""
)
SPAWNED = (
    BEGINNING
    + """
import multiprocessing

if __name__ == "__main__":
    steps("cpu")
    child = multiprocessing.get_context("spawn").Process(target=steps, args=(device,))
    child.start()
    child.join()
    print("child ended with", child.exitcode, flush=True)
    begun("parent")
"""
)
# What the driver says of this process; asked last, for a child must not inherit that it was asked.
CONTEXT = """
import ctypes

def context():
    driver = ctypes.CDLL("libcuda.so.1")
    flags, active = ctypes.c_uint(), ctypes.c_int()
    told = [
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)),
    ]
    assert told == [0, 0], told
    return active.value
"""
NEVER = BEGINNING + CONTEXT + "\nsteps('cpu')\nbegun('program')\nprint('contexts', context())\n"
LATE = BEGINNING + 'steps("cpu")\nbegun("program")\nsteps(device, 80)\nbegun("program")\n'
IN_A_THREAD = (
    BEGINNING
    + """
import threading

steps("cpu")
thread = threading.Thread(target=steps, args=(device, 80), name="serving")
thread.start()
thread.join()
begun("program")
"""
)
INSIDE_TORCH = (
    BEGINNING
    + """
from torch.nn import functional

class Model(nn.Module):
    def forward(self, tokens):
        return functional.one_hot(tokens)  # its classes are counted on the device, and waited for

steps("cpu")
tokens, model = torch.arange(8, device=device), Model()
for _ in range(60):
    model(tokens)
"""
)


def doctor(folder: Path, program: str, device: str, *options: str) -> tuple[list[str], Evidence]:
    """Run a program under the doctor; return what it printed, and the evidence."""
    script, evidence = folder / "program.py", folder / "evidence.json"
    script.write_text(program, encoding="utf-8")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "ostinato.cli", "doctor", "run"),
            *("--evidence", str(evidence), *options, "--", str(script), device),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.splitlines(), from_json(evidence.read_text(encoding="utf-8"))


def begun(device: str) -> str:
    return "begun" if device == "cuda" else "not begun"


def went_wrong(evidence: Evidence) -> list[str]:
    """Return what says that a collector failed; that there is no GPU is no failure."""
    words = ("not recorded", "stop well", "not saved", "could not be")
    told = [each for each in evidence.problems if any(word in each for word in words)]
    return [each for each in told if "no GPU" not in each]


@pytest.mark.parametrize("options", [(), ("--deep",)], ids=["plain", "deep"])
@pytest.mark.parametrize("device", DEVICES)
def test_forked_children_alone_use_the_device(
    tmp_path: Path, device: str, options: tuple[str, ...]
) -> None:
    said, evidence = doctor(tmp_path, FORKED, device, *options)
    one = [f"child {begun(device)}", "child ended with 0"]
    assert said == [*one, *one, "parent not begun"]
    assert went_wrong(evidence) == []
    assert sum(wait.count for wait in evidence.waits if wait.on_device) == 0
    assert evidence.allocator is None


@pytest.mark.parametrize("device", DEVICES)
def test_a_spawned_child_alone_uses_the_device(tmp_path: Path, device: str) -> None:
    said, evidence = doctor(tmp_path, SPAWNED, device)
    assert said == ["child ended with 0", "parent not begun"]
    assert went_wrong(evidence) == []


@pytest.mark.gpu
@pytest.mark.parametrize("options", [(), ("--deep",)], ids=["plain", "deep"])
def test_a_watch_makes_no_context_on_the_gpu(tmp_path: Path, options: tuple[str, ...]) -> None:
    said, evidence = doctor(tmp_path, NEVER, "cuda", *options)
    assert said == ["program not begun", "contexts 0"]
    assert evidence.subject.device == "cuda"
    assert evidence.allocator is None
    assert went_wrong(evidence) == []


@pytest.mark.parametrize("program", [LATE, IN_A_THREAD], ids=["late", "in-a-thread"])
@pytest.mark.parametrize("device", DEVICES)
def test_what_begins_late_is_seen_from_then_on(tmp_path: Path, device: str, program: str) -> None:
    said, evidence = doctor(tmp_path, program, device, "--deep")
    assert said[-1] == f"program {begun(device)}"
    assert went_wrong(evidence) == []
    on_device = [wait for wait in evidence.waits if wait.on_device]
    if device == "cpu":
        assert on_device == []
        return
    assert sum(wait.count for wait in on_device if wait.op == "Tensor.item") == 80
    assert evidence.allocator is not None
    assert evidence.allocator.reserved_bytes > 0
    assert (evidence.subject.accelerator != "", evidence.subject.capability != "") == (True, True)
    assert evidence.profile is not None
    assert evidence.profile.kernels > 0


@pytest.mark.gpu
def test_what_waits_inside_of_torch_is_told_though_the_watch_began_first(tmp_path: Path) -> None:
    _, evidence = doctor(tmp_path, INSIDE_TORCH, "cuda")
    line = INSIDE_TORCH.splitlines().index(
        "        return functional.one_hot(tokens)  # its classes are counted on the device, and "
        "waited for"
    )
    waited = [wait for wait in evidence.waits if wait.place and wait.place.line == line + 1]
    assert sum(wait.count for wait in waited) >= 60
    assert all(wait.on_device for wait in waited)
