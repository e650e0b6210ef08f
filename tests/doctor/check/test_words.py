"""The words of a check: the tree, the advice, the estimate; none of it needs torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ostinato.doctor.check.estimate import estimate
from ostinato.doctor.check.hidden import hidden_wait
from ostinato.doctor.check.questions import QUESTIONS, Blocker, Gap, Holds, answered
from ostinato.doctor.check.render import as_text
from ostinato.doctor.check.rewrite import instead_of
from ostinato.doctor.check.verdict import Checked, Verdict
from ostinato.doctor.finding import Place
from ostinato.graphs.reasons import Reason, remedy

PLACE = Place("/app/model.py", 12, 8, "Model.forward", "if x.sum() > 0:")
BRANCH = Blocker("host-sync", "aten._local_scalar_dense.default", PLACE, "read", "where", 3, True)
GAP = Gap("it raised RuntimeError: no", None, "run it on a GPU")


def checked(*blockers: Blocker, gaps: tuple[Gap, ...] = (), complete: bool = True) -> Checked:
    return Checked(
        target="app:example",
        blockers=blockers,
        gaps=gaps,
        notes=("it prints",),
        answers=answered(blockers, gaps, {"devices": "cuda:0"}, complete),
        assumed=len(blockers),
        estimate=estimate([(1, 1000, 0, True)] * 100) if complete else None,
        pretended="cuda:0",
        torch="2.13",
    )


def test_the_pure_half_of_a_check_never_imports_torch() -> None:
    names = ("estimate", "hidden", "questions", "render", "rewrite", "target", "verdict")
    imports = "; ".join(f"import ostinato.doctor.check.{name}" for name in names)
    code = f"import sys; {imports}; import ostinato.cli.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_verdict_follows_from_what_was_found() -> None:
    assert checked().verdict is Verdict.CAPTURABLE
    assert checked(BRANCH).verdict is Verdict.NOT_CAPTURABLE
    assert checked(gaps=(GAP,)).verdict is Verdict.UNKNOWN
    assert checked(BRANCH, gaps=(GAP,)).verdict is Verdict.NOT_CAPTURABLE


@pytest.mark.parametrize("reason", Reason, ids=str)
def test_every_reason_that_can_be_found_belongs_to_its_question(reason: Reason) -> None:
    owners = [each.key for each in QUESTIONS if str(reason) in each.reasons]
    of_the_runner = {
        "not-admitted-yet", "being-recorded", "nested-call", "eager-backend", "closed",
        "invalidated", "outside-buckets", "mode-around", "output-size-unknown", "padding-leaks",
        "branches-on-size", "over-budget", "unprofitable", "weights-moved", "attribute-changed",
        "replay-error", "new-object",
    }  # fmt: skip
    if reason is Reason.DATA_DEPENDENT_SHAPE:
        assert owners == ["shapes", "host-reads"]
    else:
        assert len(owners) == (0 if str(reason) in of_the_runner else 1)


def test_a_branch_answers_two_questions_with_no_and_names_its_line() -> None:
    no = {each.key: each.evidence for each in checked(BRANCH).answers if each.holds is Holds.NO}
    line = "model.py:12 `if x.sum() > 0:`"
    assert no == {"control-flow": line, "host-reads": line}


def test_questions_stay_open_when_no_run_came_to_its_end() -> None:
    answers = checked(gaps=(GAP,), complete=False).answers
    assert {each.holds for each in answers} == {Holds.UNKNOWN}


def test_the_report_has_verdict_tree_line_advice_and_labels_its_numbers() -> None:
    text = as_text(checked(BRANCH, gaps=(GAP,)))
    for part in (
        "app:example cannot be captured as a CUDA graph: 1 place in the way",
        "NO   is no branch taken by the values of a tensor?  (model.py:12 `if x.sum() > 0:`)",
        "1. host-sync: aten._local_scalar_dense.default, 3 times a call",
        "where    model.py:12 `if x.sum() > 0:` in Model.forward",
        "instead  where",
        "ostinato explain host-sync",
        "not looked at: it raised RuntimeError: no",
        "settles  run it on a GPU",
        "note: it prints",
        "100 a call, from 100 calls of torch (inferred)",
        "4.00 ms eager, 500 us replayed",
    ):
        assert part in text, text


def test_the_json_can_be_read_back_and_says_the_verdict() -> None:
    gap = Gap("threads", None, "settle it", frozenset({"rest", "outputs"}))
    read = json.loads(json.dumps(checked(BRANCH, gaps=(gap,)).to_dict(), allow_nan=False))
    assert read["gaps"][0]["opens"] == ["outputs", "rest"]
    assert (read["verdict"], read["reason"]) == ("not-capturable", "host-sync")
    assert read["blockers"][0]["place"]["line"] == 12
    assert read["estimate"]["basis"] == "inferred"
    assert read["estimate"]["gain"] == 8.0


@pytest.mark.parametrize(
    ("work", "eager_us", "replayed_us"),
    [
        ([(1, 0, 0, False)], 40.0, 5.9),  # bound by the host either way
        ([(1, 0, 0, False)] * 1000, 40_000.0, 5000.0),  # by the host, then by small kernels
        ([(1, 4_090_000_000, 0, True)], 1000.0, 1000.0),  # by memory: nothing to gain
        ([(1, 0, 500_000_000_000, True)], 1000.0, 1000.0),  # by products
        ([(1, 0, 500_000_000_000, False)], 12_500.0, 12_500.0),  # the same in 32 bits
        ([(0, 0, 0, False)], 40.0, 5.9),  # memory that is only reserved
    ],
)
def test_the_estimate_is_the_longer_of_host_and_gpu(
    work: list[tuple[int, int, int, bool]], eager_us: float, replayed_us: float
) -> None:
    found = estimate(work)
    assert (found.eager_us, found.replayed_us) == (eager_us, replayed_us)


@pytest.mark.parametrize(
    ("reason", "op", "options", "part"),
    [
        ("host-sync", "aten._local_scalar_dense.default", {"is_branch": True}, "torch.where"),
        ("host-sync", "aten._to_copy.default", {"source": "print(x)"}, "print after the step"),
        ("host-sync", "aten._linalg_check_errors.default", {}, "_ex variant"),
        ("several-devices", "cpu", {}, "on the device"),
        ("data-dependent-shape", "aten.nonzero.default", {}, "nonzero_static"),
        ("data-dependent-shape", "aten.index.Tensor", {}, "keep the shape"),
        ("data-dependent-shape", "aten.repeat_interleave.Tensor", {}, "output_size"),
        ("host-copy", "aten._pin_memory.default", {}, "pin once"),
        ("python-side-effect", "calls", {}, "return the value"),
        ("capture-error", "raise", {}, "same calls"),
    ],
)
def test_the_advice_fits_the_call(
    reason: str, op: str, options: dict[str, object], part: str
) -> None:
    assert part in instead_of(reason, op, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.key)
def test_every_reason_of_a_question_has_advice_of_its_own_or_a_remedy(question: object) -> None:
    for reason in question.reasons:  # type: ignore[attr-defined]
        assert instead_of(reason, "op") or remedy(Reason(reason))


@pytest.mark.parametrize(
    ("name", "overload", "args", "waits"),
    [
        ("normal", "Tensor_Tensor", (), True),
        ("normal", "float_float", (), False),
        ("histc", "default", ("x", 4), True),
        ("histc", "default", ("x", 4, 0, 1), False),
        ("_linalg_check_errors", "default", (), True),
        ("multinomial", "default", (), False),
        ("add", "Tensor", (), False),
    ],
)
def test_only_kernels_that_wait_are_taken_to_wait(
    name: str, overload: str, args: tuple[object, ...], waits: bool
) -> None:
    assert bool(hidden_wait(name, overload, args, {})) is waits
