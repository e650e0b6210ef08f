"""Capture every program on a real GPU, bare and by the runtime, and print what happened as JSON.

Run with the repository's `src` and `tests` on the path:

    PYTHONPATH=src:tests python -m doctor.check.real_capture tests/doctor/check/real_captures.json

Each program has a process of its own: a capture that failed may leave CUDA unusable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from doctor.check.library import NAMES, load
from ostinato import Outcome, graphed
from ostinato.doctor.check.run import check
from ostinato.doctor.check.target import Call, read_call


def judged(name: str) -> dict[str, Any]:
    """Return what the runtime, a bare capture and a check on pretended tensors say."""
    program = load(name)
    if program.expected.gpus > torch.cuda.device_count():
        return {"skipped": f"needs {program.expected.gpus} GPUs"}
    checked = check(lambda: program.example("cuda"), gpus=program.expected.gpus)
    runtime, detail = _by_the_runtime(read_call(program.example("cuda")))
    raw, error = _bare(read_call(program.example("cuda")))
    return {
        "check": str(checked.verdict),
        "check_reason": checked.reason,
        "runtime": runtime,
        "runtime_detail": detail,
        "raw": raw,
        "raw_error": error,
    }


def _by_the_runtime(call: Call) -> tuple[str | None, str]:
    """Return the reason why `graphed` refuses, None where it replays, and its sentence."""
    g = graphed(call.fn, admit_after=1)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            try:
                g(*call.args, **call.kwargs)
            except RuntimeError as error:
                return "capture-error", str(error)
    assert g.last is not None
    if g.last.outcome is Outcome.REPLAYED:
        return None, ""
    return str(g.last.reason), g.last.detail


def _bare(call: Call) -> tuple[bool, str]:
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            with torch.cuda.stream(side):
                for _ in range(3):
                    call.fn(*call.args, **call.kwargs)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                call.fn(*call.args, **call.kwargs)
            graph.replay()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 - whatever stops it is the answer
            return False, f"{type(error).__name__}: {error}".partition("\n")[0]
    return True, ""


def main(words: list[str]) -> None:
    if words[:1] == ["--one"]:
        sys.stdout.write("RESULT " + json.dumps(judged(words[1])) + "\n")
        return
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    running = {name: _start(name) for name in NAMES}
    results["programs"] = {name: _result(process) for name, process in running.items()}
    text = json.dumps(results, indent=1, sort_keys=True) + "\n"
    if words:
        Path(words[0]).write_text(text, "utf-8")
    sys.stdout.write(text)


def _start(name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "doctor.check.real_capture", "--one", name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    for line in out.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return found
    return {"failed": err[-2000:]}


if __name__ == "__main__":
    main(sys.argv[1:])
