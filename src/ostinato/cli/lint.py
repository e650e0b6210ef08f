"""`ostinato lint PATH...`: what makes inference slow, from source alone.

Findings go to stdout in the format asked for, files that could not be read to stderr. The exit
status is 1 if there is a finding or an unread file, and 0 if there is none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.streaming import prepare_stdout
from ostinato.doctor.lint import LintResult, combined, read_settings, write_baseline
from ostinato.doctor.lint import lint as lint_paths
from ostinato.doctor.lint.output import Format, write

_EXIT_FINDINGS = 1


def lint(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders.")],
    form: Annotated[Format, typer.Option("--format", help="How findings are written.")] = (
        Format.TEXT
    ),
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Report these alone: codes, names, or starts of codes."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Do not report these.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Pass by paths that match.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Leave out the findings in this file.")
    ] = None,
    new_baseline: Annotated[
        Path | None,
        typer.Option("--write-baseline", metavar="FILE", help="Write the findings there as known."),
    ] = None,
    unused_ignores: Annotated[
        bool,
        typer.Option("--unused-ignores", help="Report comments that silence nothing, too."),
    ] = False,
) -> None:
    r"""Find host reads in a step, locks over waits and more, without running anything.

    A loop counts as a step where it runs a model under no_grad or inference_mode, or is named like
    decoding; any other is taken for training and stays quiet.

    `# ostinato: ignore[OST101]` on a line keeps it quiet. Settings stand in pyproject.toml under
    \[tool.ostinato.lint].
    """
    prepare_stdout()
    settings = combined(
        read_settings(paths[0]),
        select=select or (),
        ignore=ignore or (),
        exclude=exclude or (),
        baseline=baseline,
    )
    result = lint_paths(paths, settings)
    _tell_problems(result)
    if new_baseline is not None:
        write_baseline(new_baseline, result.findings)
        typer.echo(f"{len(result.findings)} findings written to {new_baseline}", err=True)
        return
    text = write(result, form)
    if text:
        typer.echo(text)
    if unused_ignores:
        _tell_unused(result)
    if result.findings or result.problems or (unused_ignores and result.unused):
        raise typer.Exit(_EXIT_FINDINGS)


def _tell_problems(result: LintResult) -> None:
    for problem in result.problems:
        print(f"{problem.path}:{problem.line}: not read: {problem.why}", file=sys.stderr)  # noqa: T201


def _tell_unused(result: LintResult) -> None:
    for one in result.unused:
        words = ", ".join(one.codes) or "anything"
        print(f"{one.path}:{one.line}: nothing to ignore for {words}", file=sys.stderr)  # noqa: T201
