"""A file of findings that are known: only new ones are reported.

A finding is known again by its code, file, function and source, not by its line, so code above it
may come and go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ostinato.doctor.lint.found import LintFinding
from ostinato.errors import UsageError

_VERSION = 1


def write_baseline(file: Path, findings: Sequence[LintFinding]) -> None:
    """Write the findings down as known."""
    entries = [
        {
            "code": one.code,
            "path": one.path,
            "function": one.function,
            "expression": one.expression,
            "fingerprint": one.fingerprint,
        }
        for one in findings
    ]
    content = {"version": _VERSION, "findings": entries}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_baseline(file: Path) -> frozenset[str]:
    """Return the fingerprints of the known findings; no two are alike.

    Raises:
        UsageError: OST7003, the file is not there or not a baseline.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        version = content["version"]
        if version == _VERSION:
            return frozenset(str(entry["fingerprint"]) for entry in content["findings"])
    except FileNotFoundError:
        raise _wrong(file, "there is no such file") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _wrong(file, f"{type(error).__name__}: {error}") from error
    raise _wrong(file, f"it is of version {version}, and {_VERSION} is wanted")


def _wrong(file: Path, why: str) -> UsageError:
    return UsageError(
        f"{file} is no baseline: {why}",
        code="OST7003",
        remedy=f"write one with `ostinato lint PATH --write-baseline {file}`",
    )
