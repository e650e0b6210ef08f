"""A check as text: the verdict, the decision tree, every line with what to write instead. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.doctor.check.questions import Blocker, Holds
from ostinato.doctor.check.verdict import Checked, Verdict

_MARKS = {Holds.YES: "yes", Holds.NO: "NO ", Holds.UNKNOWN: "?  "}
_SAID = {
    Verdict.CAPTURABLE: "can be captured as a CUDA graph",
    Verdict.NOT_CAPTURABLE: "cannot be captured as a CUDA graph",
    Verdict.UNKNOWN: "cannot be judged from here",
}


def as_text(checked: Checked) -> str:
    """Return the report."""
    return "\n".join(_lines(checked)) + "\n"


def _lines(checked: Checked) -> Iterator[str]:
    count = len(checked.blockers)
    why = f": {_count(count, 'place')} in the way" if count else ""
    yield f"{checked.target} {_SAID[checked.verdict]}{why}"
    yield f"  checked without a GPU: torch {checked.torch}, {checked.pretended} pretended"
    yield ""
    for answer in checked.answers:
        evidence = f"  ({answer.evidence})" if answer.evidence else ""
        yield f"  {_MARKS[answer.holds]}  {answer.text}{evidence}"
    for number, blocker in enumerate(checked.blockers, 1):
        yield ""
        yield from _of_blocker(number, blocker)
    for gap in checked.gaps:
        yield ""
        yield f"  not looked at: {gap.what}"
        if gap.place is not None:
            yield f"    where    {gap.place}"
        yield f"    settles  {gap.settles_it}"
    if checked.notes:
        yield ""
        yield from (f"  note: {note}" for note in checked.notes)
    if checked.assumed:
        yield ""
        reads = "1 read of the host was" if checked.assumed == 1 else (
            f"{checked.assumed} reads of the host were"
        )  # fmt: skip
        yield f"  {reads} answered with assumed values, so that more than the first is shown"
    yield from _of_estimate(checked)


def _of_blocker(number: int, blocker: Blocker) -> Iterator[str]:
    times = f", {blocker.times} times a call" if blocker.times > 1 else ""
    yield f"  {number}. {blocker.reason}: {blocker.op}{times}"
    if blocker.place is not None:
        where = f" in {blocker.place.function}" if blocker.place.function else ""
        yield f"    where    {blocker.place}{where}"
    yield f"    why      {blocker.detail}"
    yield f"    instead  {blocker.instead}"
    if blocker.behind_assumption:
        yield "    reached  on one side only of a branch that depends on values"
    yield f"    more     ostinato explain {blocker.reason}"


def _of_estimate(checked: Checked) -> Iterator[str]:
    found = checked.estimate
    if found is None:
        return
    yield ""
    calls = _count(found.calls, "call")
    yield f"  launches  {found.launches} a call, from {calls} of torch (inferred)"
    is_blocked = checked.verdict is not Verdict.CAPTURABLE
    could = "once nothing is in the way, " if is_blocked else ""
    yield (
        f"  gain      {could}about {found.gain:.1f}x: {_us(found.eager_us)} eager, "
        f"{_us(found.replayed_us)} replayed, of which the GPU works {_us(found.gpu_us)} (inferred)"
    )
    yield f"            from constants of {found.constants}; measure on your own machine"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _us(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 1000 else f"{us:.0f} us"
