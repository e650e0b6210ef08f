"""For people: one paragraph for each finding, and what the run came to."""

from __future__ import annotations

from ostinato.doctor.lint import LintFinding, LintResult


def write(result: LintResult) -> str:
    """Return the findings, then a line that sums them up."""
    parts: list[str] = []
    explained: set[str] = set()
    for finding in result.findings:
        parts.append(_one(finding, in_full=finding.code not in explained))
        explained.add(finding.code)
    parts.append(_sum(result))
    return "\n".join(parts)


def _one(finding: LintFinding, *, in_full: bool) -> str:
    where = f"  in {finding.function}" if finding.function else ""
    lines = [
        f"{finding.path}:{finding.line}:{finding.column}: {finding.code} {finding.name}",
        f"  code   {finding.expression}{where}",
        f"  fact   {finding.fact}",
    ]
    if in_full:  # the same reason need not be read twice
        lines.append(f"  why    {finding.rule.why}")
        lines += [f"  try    {one.what} [{one.safety.value}]" for one in finding.rule.remedies[:1]]
        lines.append(f"  more   ostinato explain {finding.code}")
    return "\n".join(lines)


def _sum(result: LintResult) -> str:
    number = len(result.findings)
    counted = f"{number} finding{'' if number == 1 else 's'}" if number else "no findings"
    known = f", {result.known} more in the baseline" if result.known else ""
    files = f"{result.files} file{'' if result.files == 1 else 's'}"
    unread = len({problem.path for problem in result.problems})
    rest = f"; {unread} file{'' if unread == 1 else 's'} could not be read whole" if unread else ""
    return f"{counted} in {files}{known}{rest}"
