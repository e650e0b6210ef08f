"""How a run of the lint is written: text, JSON, SARIF, or GitHub's annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

from ostinato.doctor.lint import LintResult
from ostinato.doctor.lint.output import github, plain_json, sarif, text


class Format(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


_WRITERS: Mapping[Format, Callable[[LintResult], str]] = MappingProxyType(
    {
        Format.TEXT: text.write,
        Format.JSON: plain_json.write,
        Format.SARIF: sarif.write,
        Format.GITHUB: github.write,
    }
)


def write(result: LintResult, form: Format) -> str:
    """Return a run in one of the formats."""
    return _WRITERS[form](result)
