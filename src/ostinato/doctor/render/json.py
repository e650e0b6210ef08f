"""A report as JSON: what programs read, and what a later run is compared with."""

from __future__ import annotations

import json

from ostinato.doctor.plain import to_plain
from ostinato.doctor.report import Report

VERSION = 1


def json_text(report: Report) -> str:
    """Return the whole report, findings in their order."""
    document = {"version": VERSION, **to_plain(report)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
