"""For GitHub Actions: each finding is shown beside its line in the review."""

from __future__ import annotations

from ostinato.doctor.lint import LintResult
from ostinato.doctor.render.github import annotation


def write(result: LintResult) -> str:
    """Return one workflow command a line."""
    return "\n".join(
        annotation(
            f"{one.code} {one.name}",
            f"{one.expression}: {one.fact} (ostinato explain {one.code})",
            one.path,
            line=one.line,
            end_line=one.end_line,
            column=one.column,
        )
        for one in result.findings
    )
