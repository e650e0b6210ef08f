"""Start a program with the agent in it, wait for it, and read the evidence that it left.

The program has a process of its own, so nothing that happens to it (a crash, a kill, `os._exit`)
can take the report with it. Needs no torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ostinato.doctor.evidence import Ending, Evidence, Subject, from_json
from ostinato.doctor.saving import FIRST_SAVE_S
from ostinato.doctor.told_to_end import SIGNALS
from ostinato.doctor.waiting import (
    as_a_shell_gives_it,
    python_that_runs,
    signals_held,
    wait_for,
)
from ostinato.doctor.witness import Witness
from ostinato.errors import UsageError

_AGENT = "ostinato.doctor.agent:main"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a watched program ended, and what was seen of it.

    Attributes:
        status: Its exit status as a shell gives it: 128 + the number of a signal that ended it.
    """

    evidence: Evidence
    status: int


def run_watched(program: Sequence[str], choices: dict[str, bool]) -> Outcome:
    """Run `program` (a script and its arguments, or "-m", a module and its arguments) and watch it.

    Raises:
        UsageError: OST7024, there is no such script.
    """
    _check(program)
    with (
        signals_held() as before,
        tempfile.TemporaryDirectory(prefix="ostinato-doctor-") as folder,
    ):
        path = Path(folder) / "evidence.json"
        order = {"program": list(program), "evidence": str(path), "choices": choices}
        status = _run(order, before)
        return Outcome(read_evidence(path, program, status), status)


def _check(program: Sequence[str]) -> None:
    script = program[0]
    if script == "-m":
        if len(program) > 1:
            return
        problem = "-m was given, and no module"
    elif Path(script).exists():  # of a folder without a `__main__.py` Python itself tells
        return
    else:
        problem = f"there is no script {script!r}"
    raise UsageError(
        problem,
        code="OST7024",
        remedy="write `ostinato doctor run -- script.py arguments`, or `-- -m module arguments`",
    )


def _run(order: Mapping[str, object], mask: set[int]) -> int:
    """Run the agent and return its status; it sees from a pipe whether this process is alive."""
    alive, ours = os.pipe()
    try:
        child = subprocess.Popen(
            python_that_runs(_AGENT, json.dumps({**order, "alive": alive})),
            pass_fds=(alive,),
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )

        def tell(number: int) -> None:
            """Tell the agent of what ends a program: the program may not come to handle it."""
            if number in SIGNALS:
                with suppress(OSError):  # the program closed every file that it did not know
                    os.write(ours, bytes([number]))

        with Witness() as witness:
            return as_a_shell_gives_it(wait_for(child, witness, tell))
    finally:
        os.close(alive)
        os.close(ours)


def read_evidence(path: Path, program: Sequence[str], status: int) -> Evidence:
    """Return what a program left that ended with `status`; it may have left nothing."""
    title = " ".join(program)
    signalled = signal.Signals(status - 128).name if _is_signal(status) else ""
    if not path.exists():
        problem = (
            "no evidence was saved: the program ended before the first save, "
            f"{FIRST_SAVE_S:g} s after its start"
        )
        subject = Subject(title=title, ending=Ending.EXITED, exit_status=status)
        if signalled:
            subject = replace(subject, ending=Ending.SIGNALLED, detail=signalled)
        return Evidence(subject=subject, problems=(problem,))
    evidence = from_json(path.read_text(encoding="utf-8"))
    if evidence.subject.ending is not Ending.STILL_RUNNING:
        return evidence
    subject = replace(evidence.subject, ending=Ending.EXITED, exit_status=status)
    if signalled:
        subject = replace(subject, ending=Ending.SIGNALLED, detail=signalled)
    problem = f"it ended suddenly, so only its first {evidence.subject.seconds:.1f} s were kept"
    return replace(evidence, subject=subject, problems=(*evidence.problems, problem))


def _is_signal(status: int) -> bool:
    return status > 128 and (status - 128) in {s.value for s in signal.Signals}
