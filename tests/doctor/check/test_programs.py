"""A check agrees with the tape, and with real captures as they were recorded on a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch

from doctor.check.library import NAMES, Program, load
from ostinato import Outcome, graphed
from ostinato.doctor.check.run import check
from ostinato.doctor.check.target import read_call
from ostinato.doctor.check.verdict import Verdict


@pytest.fixture(params=NAMES)
def program(request: pytest.FixtureRequest) -> Program:
    return load(str(request.param))


def test_there_are_thirty_programs_and_both_verdicts_are_among_them() -> None:
    programs = [load(name) for name in NAMES]
    assert len(programs) >= 30
    assert 10 <= sum(bool(each.expected.reasons) for each in programs) <= 20


def test_a_check_says_what_a_capture_would_and_names_every_line(program: Program) -> None:
    checked = check(lambda: program.example("cuda"), gpus=program.expected.gpus)
    expected = Verdict.NOT_CAPTURABLE if program.expected.reasons else Verdict.CAPTURABLE
    assert checked.verdict is expected, checked
    if program.expected.reasons:
        assert checked.reason in program.expected.reasons, checked.blockers
    found = {each.place.line for each in checked.blockers if each.place is not None}
    assert found == program.marked, checked.blockers
    assert bool(checked.assumed) == program.expected.assumed
    for blocker in checked.blockers:
        assert blocker.place is None or blocker.place.path == str(program.path)


def test_a_factory_that_names_no_gpu_gets_the_same_verdict(program: Program) -> None:
    if program.expected.gpus > 1:
        pytest.skip("which of two GPUs it means has to be said")
    checked = check(lambda: program.example("cpu"))
    assert bool(checked.blockers) == bool(program.expected.reasons), checked


def test_a_check_agrees_with_the_tape(program: Program) -> None:
    expected = program.expected
    if expected.tape == "":
        pytest.skip("what stands in the way happens between host and GPU")
    call = read_call(program.example("cpu"))
    g = graphed(call.fn, admit_after=1)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            try:
                g(*call.args, **call.kwargs)
            except RuntimeError:
                assert expected.reasons
    assert g.last is not None
    wanted = (expected.tape,) if expected.tape else expected.reasons
    if wanted:
        assert (g.last.outcome, str(g.last.reason) in wanted) == (Outcome.EAGER, True), g.last
    else:
        assert g.last.outcome is Outcome.REPLAYED, g.last
