"""Seeded programs: a planted fault is found at its line, and nothing in healthy ones."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.seeded.suite import EVIDENCE, Program, found, programs, watch_program
from ostinato.doctor import catalog
from ostinato.doctor.evidence import Evidence, from_json
from ostinato.doctor.finding import Finding

PLANTED = programs("planted")
HEALTHY = programs("healthy")
BY_NAME = {program.name: program for program in (*PLANTED, *HEALTHY)}
RECORDED = sorted(EVIDENCE.glob("*.json"))

ATTEMPTS = 2
"""What is wrong by rule is wrong again as well."""
LACKS_CPUS = 0.1
"""Of the time ready without a CPU: from here on a thread waits for the GIL less than it would."""


@pytest.fixture(autouse=True)
def _a_program_may_warn() -> Iterator[None]:
    """What a seeded program does badly, torch and `graphed` warn of as well."""
    forget_what_was_compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def forget_what_was_compiled() -> None:
    """Let torch.compile begin anew: it counts compilations over all tests of a process."""
    compiler = sys.modules.get("torch._dynamo")
    if compiler is not None:
        compiler.reset()


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings}


def at_its_line(program: Program, findings: tuple[Finding, ...]) -> bool:
    if not program.line:
        return True
    places = [f.place for f in findings if f.code == program.expect]
    return any(
        place is not None
        and Path(place.path).name == program.path.name
        and place.line == program.line
        for place in places
    )


def lacked_cpus(evidence: Evidence) -> bool:
    """Whether threads stood ready without a CPU: that hides how long they wait for the GIL."""
    threads = evidence.gil.threads if evidence.gil is not None else ()
    return any(thread.ready >= LACKS_CPUS for thread in threads)


def judge(program: Program, evidence: Evidence) -> str:
    """Return what is wrong with what was found; empty if it is right."""
    findings = found(evidence)
    if not program.expect:
        return "; ".join(f"{f.code} {f.fact} at {f.place}" for f in findings)
    if program.expect not in codes(findings):
        return f"{program.expect} was not found, but {sorted(codes(findings))}"
    if not at_its_line(program, findings):
        return f"{program.expect} was found at {[str(f.place) for f in findings]}"
    extra = codes(findings) - {program.expect, *program.companions}
    return f"found beside it: {sorted(extra)}" if extra else ""


@pytest.mark.parametrize("program", [p for p in PLANTED if not p.needs_gpu], ids=lambda p: p.name)
def test_a_planted_fault_is_found_at_its_line(program: Program) -> None:
    wrong = "not watched"
    for _ in range(ATTEMPTS):
        evidence = watch_program(program, "cpu")
        wrong = judge(program, evidence)
        if not wrong:
            return
        if program.expect == "OST501" and lacked_cpus(evidence) and not codes(found(evidence)):
            pytest.skip("too few CPUs to spare to see who waits for the GIL; recorded evidence is")
    pytest.fail(wrong)


@pytest.mark.parametrize("program", [p for p in HEALTHY if not p.needs_gpu], ids=lambda p: p.name)
def test_nothing_is_found_in_a_healthy_program(program: Program) -> None:
    wrong = [judge(program, watch_program(program, "cpu"))]
    while wrong[-1] and len(wrong) < ATTEMPTS:
        wrong.append(judge(program, watch_program(program, "cpu")))
    assert wrong[-1] == ""


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_evidence_is_judged_rightly(path: Path) -> None:
    program = BY_NAME[path.stem.removeprefix("on_gpu_")]
    assert judge(program, from_json(path.read_text(encoding="utf-8"))) == ""


def test_every_code_but_those_of_the_machine_has_a_planted_program() -> None:
    planted = {program.expect for program in PLANTED}
    of_the_machine = {code for code in catalog.RULES if code.startswith("OST7")}
    assert planted == catalog.RULES.keys() - of_the_machine


def test_there_are_forty_planted_and_twenty_healthy_programs() -> None:
    assert len(PLANTED) >= 40
    assert len(HEALTHY) >= 20
