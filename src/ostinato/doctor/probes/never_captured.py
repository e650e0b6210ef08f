"""OST201 never-captured.

What it sees: the outermost modules with their signatures, and a profiled window.
How it decides: at least 50 calls, nine tenths of them with one of four signatures and without a
gradient, nothing records or compiles it, and the window shows a step bound by launching. Without a
window it abstains, and says what would settle it.
"""

from __future__ import annotations

from ostinato.doctor.activity import Callable_
from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.probe import ONE_WINDOW, Verdict, abstain, percent
from ostinato.doctor.probes.launches import launching
from ostinato.doctor.probes.signatures import looked_at

RULE = RULES["OST201"]
_CALLS = 50
_SIGNATURES = 4
_STEADY = 0.9
_WITH_GRAD = 0.1
_IN_A_GRAPH_US = 1.04  # a kernel inside a graph of an H200, 2026-11-29


def probe(evidence: Evidence) -> Verdict:
    """Find a steady step that nothing records."""
    found = next((c for c in evidence.callables if c.name == evidence.step_name), None)
    if found is None or evidence.subject.device != "cuda" or not _is_steady(found):
        return None
    if found.captured or found.compiled or _is_recorded(evidence, found):
        return None
    if evidence.profile is None:
        return abstain(
            RULE,
            f"{found.name} was called {found.calls} times with steady shapes and is not recorded, "
            "and nobody profiled",
            "run again with `--deep`: an idle device means that recording would pay",
        )
    bound = launching(evidence)
    if bound is None:
        return None
    saved = max(0.0, bound.idle_us - bound.kernels * _IN_A_GRAPH_US)
    fact = (
        f"{found.name} ran {found.calls} times with {_shapes(found)} and was never recorded; the "
        f"device idles {percent(bound.idle_share)} of each step"
    )
    share, steps = saved / bound.step_us, evidence.profile.steps
    # Nobody has replayed it yet.
    cost = Cost(saved, share, kind=Basis.INFERRED, steps=steps, no_spread=ONE_WINDOW)
    return RULE.finding(fact, found.place, cost)


def _is_steady(found: Callable_) -> bool:
    if found.calls < _CALLS or found.with_grad > _WITH_GRAD * found.calls:
        return False
    most = sorted((use.calls for use in found.signatures), reverse=True)[:_SIGNATURES]
    return sum(most) >= _STEADY * looked_at(found)


def _is_recorded(evidence: Evidence, found: Callable_) -> bool:
    if any(use.kind == "cuda-graph" and use.replays for use in evidence.graphs):
        return True
    if evidence.profile is not None and evidence.profile.graph_launches:
        return True
    return any(use.name == found.name for use in evidence.graphs)


def _shapes(found: Callable_) -> str:
    count = len(found.signatures)
    return "one shape" if count == 1 else f"{count} shapes"
