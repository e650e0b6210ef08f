"""For GitHub Actions: each finding is shown beside its line in the review."""

from __future__ import annotations

from ostinato.doctor.lint import LintResult


def write(result: LintResult) -> str:
    """Return one workflow command a line."""
    return "\n".join(
        f"::warning title={_property(f'{one.code} {one.name}')},file={_property(one.path)},"
        f"line={one.line},endLine={one.end_line},col={one.column}::"
        f"{_message(f'{one.expression}: {one.fact} (ostinato explain {one.code})')}"
        for one in result.findings
    )


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
