"""OST401 attention-fallback.

What it sees: calls of scaled_dot_product_attention: shapes, the backend that ran, times where
backends were tried, and torch's own words where it could be asked.
How it decides: `math` ran for 64 query tokens and 64 keys or more, or another backend was timed at
least a third faster. Fewer tokens, as in decoding, take about as long on all. The reason comes from
torch, else from the rules in `attention_reasons`.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost, Remedy
from ostinato.doctor.graph_use import AttentionUse, BackendTime
from ostinato.doctor.probe import Verdict, cost_in_steps, with_spread
from ostinato.doctor.probes.attention_reasons import architecture, why_not_flash
from ostinato.units import format_us

RULE = RULES["OST401"]
_TOKENS = 64
_FASTER = 1.33
_LEAST_CALLS = 4
_TRIED_ONCE = "each backend was tried once, and the median of its runs kept"
_LONG_US = 100.0  # below, times of fused kernels are those of launching them
_CURES = (
    ("dtype is", "fp16 or bf16"),
    ("attn_mask", "drop the mask"),
    ("head size", "pad the head size"),
    ("allows", "sdpa_kernel"),
    ("dropout", "model.eval()"),
)


def probe(evidence: Evidence) -> Verdict:
    """Find attention on a slow backend."""
    guilty = [use for use in evidence.attention if use.count >= _LEAST_CALLS and _is_slow(use)]
    if not guilty:
        return None
    first = max(guilty, key=lambda use: (_saved_us(use), use.count * use.query[-2] * use.key[-2]))
    fact = (
        f"attention over {first.query[-2]} queries and {first.key[-2]} keys ran on {first.backend}"
    )
    best = _best(first)
    if best is not None and best.backend != first.backend:
        ran = next((t.us for t in first.times if t.backend == first.backend), None)
        if ran is not None:
            fact += f" in {format_us(ran)}; {best.backend} takes {format_us(best.us)}"
    reasons = _reasons(first)
    fact += f"; flash refuses: {'; '.join(reasons[:3])}" if reasons else ""
    others = tuple(use.place for use in guilty if use is not first and use.place is not None)[:5]
    remedies = _fitting(reasons) or RULE.remedies
    return RULE.finding(
        fact, first.place, _cost(evidence, guilty), remedies=remedies, others=others
    )


def _fitting(reasons: tuple[str, ...]) -> tuple[Remedy, ...]:
    """Return the remedies that do something about these reasons."""
    said = " ".join(reasons)
    return tuple(
        remedy
        for remedy in RULE.remedies
        if any(word in said and cure in remedy.what for word, cure in _CURES)
    )


def _is_slow(use: AttentionUse) -> bool:
    best = _best(use)
    if best is not None:
        ran = next((t.us for t in use.times if t.backend == use.backend), None)
        if ran is not None and best.backend != use.backend:
            return ran >= _FASTER * best.us and (use.backend == "math" or ran >= _LONG_US)
    if use.backend != "math" or min(use.query[-2], use.key[-2]) < _TOKENS:
        return False
    return not use.times or len(use.times) == 1  # nothing else takes these arguments as they are


def _best(use: AttentionUse) -> BackendTime | None:
    return min(use.times, key=lambda time: time.us, default=None)


def _saved_us(use: AttentionUse) -> float:
    best = _best(use)
    ran = next((t.us for t in use.times if t.backend == use.backend), None)
    return 0.0 if best is None or ran is None else (ran - best.us) * use.count


def _reasons(use: AttentionUse) -> tuple[str, ...]:
    told = tuple(text.partition(": ")[2] for text in use.refusals if text.startswith("flash"))
    reasons = tuple(dict.fromkeys((*why_not_flash(use), *told)))
    arch = architecture(use.capability)
    if not reasons and use.backend == "math" and arch:
        return (f"torch gives no reason, on {arch}",)
    return reasons


def _cost(evidence: Evidence, guilty: list[AttentionUse]) -> Cost | None:
    saved = sum(_saved_us(use) for use in guilty)
    if saved > 0:
        cost = cost_in_steps(evidence, saved)
        return None if cost is None else replace(cost, no_spread=_TRIED_ONCE)
    on_cpu = sum(use.us for use in guilty if use.device == "cpu")
    # Half of what math takes: on a Xeon flash took 0.3 to 0.5 of it from 128 tokens up.
    if not on_cpu:
        return None
    half = cost_in_steps(evidence, on_cpu / 2, basis=Basis.INFERRED)
    slowest = max(guilty, key=lambda use: use.us)
    return with_spread(half, [us / 2 for us in slowest.each_us], "call")
