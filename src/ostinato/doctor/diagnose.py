"""All probes over one evidence: the report.

A probe that fails is a bug of ours and costs only its own finding: the rest of the report is still
there, and says which probe failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Abstention, Finding
from ostinato.doctor.probe import Probe
from ostinato.doctor.probes import PROBES
from ostinato.doctor.report import Report, make_report


def diagnose(evidence: Evidence, probes: Iterable[Probe] | None = None) -> Report:
    """Return what the probes find in `evidence`."""
    findings: list[Finding] = []
    abstentions: list[Abstention] = []
    problems: list[str] = []
    for probe in PROBES if probes is None else probes:
        try:
            verdict = probe(evidence)
        except Exception as error:  # noqa: BLE001 - odd evidence must not cost the other findings
            problems.append(f"the probe {probe.__module__.rpartition('.')[2]} failed: {error!r}")
            continue
        if isinstance(verdict, Finding):
            findings.append(verdict)
        elif isinstance(verdict, Abstention):
            abstentions.append(verdict)
    return make_report(evidence, findings, abstentions, problems)
