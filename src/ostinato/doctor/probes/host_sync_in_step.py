"""OST101 host-sync-in-step.

What it sees: waits of the host for the device, by line, inside steps and between them.
How it decides: a wait inside a step counts when it happens in at least half of the steps (a check
now and then is no habit, nor are sixty while the first step sets itself up). Between steps one
export per step is the result on its way out, and so is quiet; reading a single value there every
step is a decision or a log line, and counts. On a GPU the time was measured; on a CPU nothing
waits, and 16 us each is what one costs on an idle H200.
"""

from __future__ import annotations

from statistics import median

from ostinato.doctor.activity import Wait, WaitKind
from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Place, Remedy, Safety
from ostinato.doctor.probe import ENOUGH_STEPS, Verdict, abstain, cost_in_steps, times, with_spread
from ostinato.units import format_us

RULE = RULES["OST101"]
IDLE_WAIT_US = 15.7
"""`.item()` on an idle stream of an H200, measured on 2026-11-29."""
_GENERATION = "/transformers/generation/"
_ACCELERATE = Remedy(
    "on a GPU, `ostinato.accelerate(model).generate(...)`: the decode step is recorded, and "
    "whether to stop is read once in several tokens",
    Safety.SAFE,
)
_HABIT = 0.5
_LOOP = 20


def probe(evidence: Evidence) -> Verdict:
    """Find lines that make the host wait in most steps."""
    if not evidence.looked_at("waits") or not evidence.waits:
        return None
    if not evidence.steps_seen:
        return _without_steps(evidence)
    if evidence.steps_seen < ENOUGH_STEPS:
        return None
    guilty = [wait for wait in evidence.waits if _is_habit(wait, evidence.steps_seen)]
    exports = [wait for wait in guilty if _hands_out(wait)]
    if len(exports) == 1 and exports[0].between <= 1.1 * evidence.steps_seen:
        guilty.remove(exports[0])  # the result of the step, read once
    if not guilty:
        return None
    return _finding(evidence, guilty)


def _is_habit(wait: Wait, steps: int) -> bool:
    counted = wait.inside + wait.between if wait.steps is None else wait.steps
    return counted / steps >= _HABIT


def _hands_out(wait: Wait) -> bool:
    return wait.kind in (WaitKind.EXPORT, WaitKind.SYNCHRONIZE, WaitKind.UPLOAD) and not wait.inside


def _finding(evidence: Evidence, guilty: list[Wait]) -> Verdict:
    steps = evidence.steps_seen
    counts = {id(wait): (wait.inside + wait.between) / steps for wait in guilty}
    measured = all(wait.on_device for wait in guilty)
    guilty.sort(key=lambda wait: (-(wait.us if measured else 0.0), -counts[id(wait)]))
    total = sum(counts.values())
    would = "waits" if measured else "would wait"
    fact = f"each step {would} for the device {times(total)}"
    if len(guilty) == 1:
        fact += f", in {guilty[0].op}"
    else:
        fact += f", on {len(guilty)} lines; {times(counts[id(guilty[0])])} in {guilty[0].op}"
    if not measured:
        here = sum(_usual_us(wait) for wait in guilty)
        fact += f" (on this CPU it takes {format_us(here)} and waits for nothing)"
    timed = measured and all(wait.us > 0 for wait in guilty)
    us = sum(_in_steps_us(w) for w in guilty) if timed else total * steps * IDLE_WAIT_US
    cost = cost_in_steps(evidence, us, basis=Basis.MEASURED if timed else Basis.INFERRED)
    if timed:
        cost = with_spread(cost, guilty[0].step_us, "wait")
    others = tuple(wait.place for wait in guilty[1:6] if wait.place is not None)
    return RULE.finding(fact, _first_place(guilty), cost, remedies=_remedies(guilty), others=others)


def _in_steps_us(wait: Wait) -> float:
    """Return the time of what fell into steps or between them: loading may wait as well."""
    return wait.us * min(1.0, (wait.inside + wait.between) / max(wait.count, 1))


def _usual_us(wait: Wait) -> float:
    """Return the time in a step that has any; the very first call of an operation is no measure."""
    mean_us = wait.us / max(wait.count, 1)
    a_step = (wait.inside + wait.between) / max(wait.steps or wait.count, 1)
    return min(mean_us, median(wait.step_us or (mean_us,))) * max(1.0, a_step)


def _remedies(guilty: list[Wait]) -> tuple[Remedy, ...]:
    """Return what to try; a line in transformers' loop is not the program's to change."""
    inner = [wait.place.stack[-1] for wait in guilty if wait.place and wait.place.stack]
    if any(_GENERATION in frame for frame in inner):
        return (_ACCELERATE, *RULE.remedies)
    return RULE.remedies


def _first_place(guilty: list[Wait]) -> Place | None:
    return next((wait.place for wait in guilty if wait.place is not None), None)


def _without_steps(evidence: Evidence) -> Verdict:
    often = max(evidence.waits, key=lambda wait: wait.count)
    if often.count < _LOOP:
        return None
    where = f" at {often.place}" if often.place is not None else ""
    return abstain(
        RULE,
        f"{often.op} was called {often.count} times{where}, and no step was seen",
        "mark the loop's body: `with watch.step():`",
    )
