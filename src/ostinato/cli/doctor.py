"""`ostinato doctor`: why a program is slow, which line does it, what it costs and what to try.

The program's own output stays as it is; the report goes to stderr, and its exit status is passed
on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ostinato.cli.doctor_host import host_command
from ostinato.cli.doctor_places import check_places, write_report
from ostinato.cli.doctor_trace import trace_command

if TYPE_CHECKING:
    from ostinato.doctor.baseline import Baseline as Earlier
    from ostinato.doctor.evidence import Evidence

EXIT_UNWRITTEN = 1
EXIT_WORSE = 3

app = typer.Typer(no_args_is_help=True)
app.command("host")(host_command)
app.command("trace")(trace_command)

Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one page with everything.")
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the report as JSON; - is stdout."),
]
Format = Annotated[str, typer.Option("--format", help="On stderr: text, json, sarif or github.")]
Folded = Annotated[
    Path | None,
    typer.Option("--folded", metavar="FILE", help="Write folded stacks for any flame graph tool."),
]
Baseline = Annotated[
    Path | None, typer.Option("--baseline", metavar="FILE", help="Compare with an earlier --json.")
]
ExitOnRegression = Annotated[
    bool,
    typer.Option("--exit-on-regression", help="Exit 3 when something is worse than the baseline."),
]


@app.callback()
def doctor() -> None:
    """Say why a program is slow, which line costs what, and what to try."""


@app.command()
def run(
    program: Annotated[
        list[str], typer.Argument(metavar="-- SCRIPT [ARGUMENTS]", help="Or: -- -m MODULE …")
    ],
    html: Html = None,
    json: Json = None,
    evidence: Annotated[
        Path | None,
        typer.Option("--evidence", metavar="FILE", help="Write all that was recorded."),
    ] = None,
    folded: Folded = None,
    format: Format = "text",  # noqa: A002 - the option's name
    baseline: Baseline = None,
    exit_on_regression: ExitOnRegression = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Also profile a few steps, and time attention both ways: slower."
        ),
    ] = False,
) -> None:
    """Run a script with the agent in it, and report when it ends, however it ends."""
    from ostinato.doctor.evidence import to_json
    from ostinato.doctor.supervise import run_watched

    places = {"--html": html, "--json": json, "--folded": folded, "--evidence": evidence}
    earlier = _checked(places, format, baseline, exit_on_regression)
    choices = {"whole_program": True, "host": True, "profile": deep, "trials": deep}
    outcome = run_watched(program, choices)
    written = _show(outcome.evidence, html, json, folded, format)
    written &= write_report(evidence, lambda: to_json(outcome.evidence))
    worse = _compare(outcome.evidence, earlier)
    if worse and exit_on_regression and outcome.status == 0:
        raise typer.Exit(EXIT_WORSE)
    raise typer.Exit(outcome.status or (0 if written else EXIT_UNWRITTEN))


@app.command()
def report(
    evidence: Annotated[Path, typer.Argument(help="What `doctor run --evidence FILE` wrote.")],
    html: Html = None,
    json: Json = None,
    folded: Folded = None,
    format: Format = "text",  # noqa: A002 - the option's name
    baseline: Baseline = None,
    exit_on_regression: ExitOnRegression = False,
) -> None:
    """Report on evidence that was recorded before, here or elsewhere."""
    from ostinato.doctor.evidence import from_json

    places = {"--html": html, "--json": json, "--folded": folded}
    earlier = _checked(places, format, baseline, exit_on_regression)
    recorded = from_json(evidence.read_text(encoding="utf-8", errors="replace"))
    written = _show(recorded, html, json, folded, format)
    if _compare(recorded, earlier) and exit_on_regression:
        raise typer.Exit(EXIT_WORSE)
    if not written:
        raise typer.Exit(EXIT_UNWRITTEN)


def _checked(
    places: dict[str, Path | None], form: str, baseline: Path | None, exit_on_regression: bool
) -> Earlier | None:
    """Refuse what would fail after the program has run; return the baseline."""
    from ostinato.doctor.baseline import read_baseline
    from ostinato.doctor.render import check_format

    check_places(places)
    check_format(form)
    if baseline is None and exit_on_regression:
        raise typer.BadParameter("it needs --baseline FILE", param_hint="--exit-on-regression")
    return None if baseline is None else read_baseline(baseline)


def _show(
    evidence: Evidence, html: Path | None, json: Path | None, folded: Path | None, form: str
) -> bool:
    """Print the report, and write what was asked for; return whether all of it was."""
    from ostinato.doctor.diagnose import diagnose
    from ostinato.doctor.render import render
    from ostinato.doctor.render.folded import folded_stacks
    from ostinato.doctor.render.html import html_page

    found = diagnose(evidence)
    typer.echo(render(found, form), err=True, nl=False)
    written = write_report(json, lambda: render(found, "json"))
    written &= write_report(html, lambda: html_page(found, evidence))
    written &= write_report(folded, lambda: folded_stacks(evidence.stacks))
    return written


def _compare(evidence: Evidence, baseline: Earlier | None) -> bool:
    """Say what is worse than in the baseline, and return whether anything is."""
    if baseline is None:
        return False
    from ostinato.doctor.baseline import compare
    from ostinato.doctor.diagnose import diagnose

    changes = compare(baseline, diagnose(evidence))
    for change in changes:
        typer.echo(change.words, err=True)
    if not changes:
        typer.echo("no change against the baseline", err=True)
    return any(change.is_worse for change in changes)
