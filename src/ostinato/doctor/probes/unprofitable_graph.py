"""OST207 unprofitable-graph.

What it sees: the time of an eager run and of a replay, taken when each recording was made, and
calls that ran eagerly because recording did not pay.
How it decides: 50 calls or more; and either half of them ran eagerly as `unprofitable`, or every
recording that served a call saves less than a tenth. When a recording is made each way is timed in
a run or a few, which tells a tenth apart only where several recordings agree or a replay takes
long: else it abstains.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost, Finding
from ostinato.doctor.graph_use import GraphUse
from ostinato.doctor.probe import Verdict, abstain, with_spread
from ostinato.units import format_bytes, format_us

RULE = RULES["OST207"]
_CALLS = 50
_SAVES = 0.1
_AGREE = 3  # recordings, each timed by itself
_LONG_US = 1e3  # a run this long is hardly changed by one interrupt or one look of a watcher


def probe(evidence: Evidence) -> Verdict:
    """Find callables for which a recording buys nothing."""
    open_: Verdict = None
    for use in evidence.graphs:
        if use.calls < _CALLS or use.kind != "graphed":
            continue
        eagerly = sum(each.count for each in use.eager if each.word == "unprofitable")
        if eagerly >= use.calls / 2:
            fact = (
                f"{eagerly} of {use.calls} calls of {use.name} ran eagerly: a replay is no faster"
            )
            return RULE.finding(fact, use.place)
        found = _slow_replays(use)
        if isinstance(found, Finding):
            return found
        open_ = open_ or found
    return open_


def _slow_replays(use: GraphUse) -> Verdict:
    timed = [r for r in use.recordings if r.hits and r.eager_us and r.replay_us]
    if not timed or any(r.replay_us < (1 - _SAVES) * r.eager_us for r in timed):
        return None
    most = max(timed, key=lambda recording: recording.hits)
    is_long = all(each.replay_us >= _LONG_US for each in timed)
    if len(timed) < _AGREE and not is_long:
        counted = "1 recording" if len(timed) == 1 else f"{len(timed)} recordings"
        why = (
            f"a replay of {use.name} was timed at {format_us(most.replay_us)} and an eager run at "
            f"{format_us(most.eager_us)}, in {counted}: too short and too few to tell them apart"
        )
        settles_it = "time a hundred calls with and without graphed, on a machine that is not busy"
        return abstain(RULE, why, settles_it)
    fact = (
        f"replaying {use.name} takes {format_us(most.replay_us)} and running it eagerly "
        f"{format_us(most.eager_us)}; its recordings keep {format_bytes(use.bytes)}"
    )
    lost = most.replay_us - most.eager_us
    cost = Cost(lost, lost / most.replay_us, per="call") if lost > 0 else None
    each_us = [recording.replay_us - recording.eager_us for recording in timed]
    return RULE.finding(fact, use.place, with_spread(cost, each_us, "recording"))
