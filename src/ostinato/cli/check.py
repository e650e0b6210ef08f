"""`ostinato check pkg.mod:factory`: can this call be captured? Answered without a GPU.

The report, or with `--json` one line of JSON, goes to stdout, and what the checked program prints
to stderr. The exit status is the verdict: 0, the call can be captured; 1, it cannot; 3, it cannot
be judged from here; 2, the command was used wrongly, the call fails by itself, or the check does.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from ostinato.cli.streaming import prepare_stdout, write_now

if TYPE_CHECKING:
    from ostinato.doctor.check.verdict import Checked

_EXIT = {"capturable": 0, "not-capturable": 1, "unknown": 3}


@contextmanager
def _broken_off() -> Iterator[None]:
    """Tell an error of the check itself as one: the status of a traceback reads like a verdict."""
    from ostinato.doctor.check.interrupted import raise_if_interrupted
    from ostinato.doctor.raised import words_of
    from ostinato.errors import InternalError, OstinatoError

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


def _line_of(checked: Checked) -> str:
    return json.dumps(checked.to_dict(), allow_nan=False) + "\n"


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PKG.MOD:FACTORY",
            help="A function that returns (callable, args) or (callable, args, kwargs).",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON and nothing else on stdout.")
    ] = False,
    gpus: Annotated[int, typer.Option(min=1, max=64, help="How many GPUs to pretend.")] = 1,
) -> None:
    """Say whether a call can be captured as a CUDA graph, and which lines stand in the way.

    No GPU is needed and none is used: the call runs on tensors without contents. The factory may
    put things on "cuda"; where it puts nothing there, all of it is taken to lie there. It is the
    inference that is checked: gradients are off.

    Exits 0 if it can be captured, 1 if it cannot, 3 if it cannot be judged from here, and 2 if the
    command was used wrongly or the call fails by itself.
    """
    prepare_stdout()
    from ostinato.cli import EXIT_INTERRUPTED
    from ostinato.doctor.check.ending import keep_the_status, process_goes_on
    from ostinato.doctor.check.interrupted import second_press_ends
    from ostinato.doctor.check.render import as_text
    from ostinato.doctor.check.run import check as check_call
    from ostinato.doctor.check.target import find_factory

    keep_the_status()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        stack.enter_context(second_press_ends(EXIT_INTERRUPTED))
        stack.enter_context(process_goes_on())
        stack.enter_context(_broken_off())
        checked = check_call(find_factory(target), target=target, gpus=gpus)
        said = _line_of(checked) if as_json else as_text(checked)
    write_now(said)
    raise typer.Exit(_EXIT[str(checked.verdict)])
