"""For programs: a list of findings, each an object."""

from __future__ import annotations

import json

from ostinato.doctor.lint import LintResult


def write(result: LintResult) -> str:
    """Return a JSON list; lines and columns are integers, from 1."""
    return json.dumps(
        [
            {
                "code": one.code,
                "name": one.name,
                "path": one.path,
                "line": one.line,
                "column": one.column,
                "end_line": one.end_line,
                "end_column": one.end_column,
                "function": one.function,
                "expression": one.expression,
                "fact": one.fact,
                "fingerprint": one.fingerprint,
            }
            for one in result.findings
        ],
        indent=1,
        ensure_ascii=False,
    )
