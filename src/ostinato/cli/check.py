"""`ostinato check pkg.mod:factory`: can this call be captured? Answered without a GPU.

The report, or with `--json` one line of JSON, goes to stdout, and what the checked program prints
to stderr. The exit status is the verdict: 0, the call can be captured; 1, it cannot; 3, it cannot
be judged from here, or the code that is checked ended the process of the check; 2, the command was
used wrongly, the call fails by itself, or the check does.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ostinato.cli.streaming import prepare_stdout, write_now


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
    from ostinato.doctor.check import apart

    answer = apart.answered_apart(target, as_json=as_json, gpus=gpus)
    typer.echo(answer.error, err=True, nl=False)
    write_now(answer.said)
    raise typer.Exit(answer.status)
