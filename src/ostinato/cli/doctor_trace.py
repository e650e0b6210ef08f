"""`ostinato doctor trace FILE`: the same probes on a trace that was saved before.

The report goes to stdout. The status is 0 whatever was found, and 2 for a file that is no trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.streaming import prepare_stdout, write_now


def trace_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="torch.profiler's Chrome trace (.json, .json.gz), or what "
            "`nsys export --type sqlite` made.",
        ),
    ],
    step: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The annotation, or its beginning, that makes one step. Default: ProfilerStep, "
            "or what `ostinato doctor run` marks.",
        ),
    ] = "",
    form: Annotated[str, typer.Option("--format", help="text, json, sarif or github.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page as well.")
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option("--evidence", metavar="FILE", help="Write all that was read from it."),
    ] = None,
) -> None:
    """Say why a program is slow, from a saved trace of torch.profiler or Nsight Systems."""
    prepare_stdout()
    from ostinato.doctor.diagnose import diagnose
    from ostinato.doctor.evidence import to_json
    from ostinato.doctor.render import render
    from ostinato.doctor.trace import read_trace

    recorded = read_trace(file, step=step)
    report = diagnose(recorded)
    if evidence is not None:
        evidence.write_text(to_json(recorded), encoding="utf-8")
    if html is not None:
        from ostinato.doctor.render.html import html_page

        html.write_text(html_page(report, recorded), encoding="utf-8")
    write_now(render(report, "json" if as_json else form))
