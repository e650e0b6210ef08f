"""The process in which `ostinato check` makes its check, and what it answers.

Started by `apart.py`, for which it leaves the answer in a file: 0, the call can be captured; 1, it
cannot; 3, it cannot be judged from here; 2, there is an error; 130, the user interrupted.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path

from ostinato.doctor.check.apart import EXIT_OPEN, Answer
from ostinato.doctor.told_to_end import interrupts_as_python_has_them
from ostinato.errors import InternalError, OstinatoError

_ERROR = 2
_INTERRUPTED = 130
_STATUS = {"capturable": 0, "not-capturable": 1, "unknown": EXIT_OPEN}


def answer(target: str, *, as_json: bool, gpus: int) -> Answer:
    """Check what `target` names; whatever the checked program prints goes to stderr."""
    try:
        return _answer(target, as_json=as_json, gpus=gpus)
    except OstinatoError as error:
        return Answer(_ERROR, error=f"{error}\n")
    except KeyboardInterrupt:
        return Answer(_INTERRUPTED)


def _answer(target: str, *, as_json: bool, gpus: int) -> Answer:
    from ostinato.doctor.check.ending import process_goes_on
    from ostinato.doctor.check.render import as_text
    from ostinato.doctor.check.run import check
    from ostinato.doctor.check.target import find_factory

    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        stack.enter_context(process_goes_on())
        stack.enter_context(_broken_off())
        checked = check(find_factory(target), target=target, gpus=gpus)
        status = _STATUS[str(checked.verdict)]
        if as_json:
            return Answer(status, said=json.dumps(checked.to_dict(), allow_nan=False) + "\n")
        return Answer(status, said=as_text(checked))


@contextmanager
def _broken_off() -> Iterator[None]:
    """Tell an error of the check itself as one: the status of a traceback reads like a verdict."""
    from ostinato.doctor.check.interrupted import raise_if_interrupted
    from ostinato.doctor.raised import words_of

    try:
        yield
    except OstinatoError:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the checked objects raise
        raise_if_interrupted(error)
        traceback.print_exception(error, limit=-8)
        raise InternalError(
            f"the check itself broke off, so nothing is known of the call: {words_of(error)}",
            code="OST7055",
            remedy="report it with the lines above and the call; a smaller part may be checked",
        ) from None


def main() -> None:
    """Answer the order of `answered_apart`, which is this process's first argument."""
    try:
        _main(sys.argv[1])
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)


def _main(order: str) -> None:
    read = json.loads(order)
    sys.argv[:] = read["argv"]
    interrupts_as_python_has_them()
    if not read["is_deaf"]:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    from ostinato.doctor.check.pressing import Pressing

    Pressing(read["pressed"]).start()
    faulthandler.enable(
        all_threads=False
    )  # where C code crashes, the Python line that called it is shown
    given = answer(**read["asked"])
    path = Path(read["answer"])
    path.with_suffix(".draft").write_text(json.dumps(asdict(given)), encoding="utf-8")
    path.with_suffix(".draft").replace(path)
