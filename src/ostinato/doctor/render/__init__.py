"""A report in five formats: text, JSON, SARIF, GitHub annotations, and one page of HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ostinato.doctor.render.github import github
from ostinato.doctor.render.json import json_text
from ostinato.doctor.render.sarif import sarif
from ostinato.doctor.render.text import text
from ostinato.doctor.report import Report
from ostinato.errors import UsageError

FORMATS: Mapping[str, Callable[[Report], str]] = MappingProxyType(
    {"text": text, "json": json_text, "sarif": sarif, "github": github}
)


def render(report: Report, form: str) -> str:
    """Return the report as "text", "json", "sarif" or "github".

    Raises:
        UsageError: OST7025, no such format.
    """
    check_format(form)
    return FORMATS[form](report)


def check_format(form: str) -> None:
    """Refuse a name that is no format.

    Raises:
        UsageError: OST7025, no such format.
    """
    if form not in FORMATS:
        raise UsageError(
            f"there is no format {form!r}",
            code="OST7025",
            remedy=f"choose {', '.join(FORMATS)}; a page of HTML is written with --html FILE",
        )
