"""OST702 degraded-pcie-link.

What it sees: generation and width of the link while a copy ran, and the rate of that copy.
How it decides: under load, narrower or slower than both ends can do, or a pinned copy below 60 % of
what such a link carries (85 % of its raw rate). Read while idle it proves nothing, since links rest
at generation 1: then it abstains. Where a measured rate is good, a reported width is taken for
wrong.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Basis, Cost
from ostinato.doctor.host_evidence import Link
from ostinato.doctor.probe import Verdict, abstain
from ostinato.doctor.probes.remote_numa_memory import used_gpu

RULE = RULES["OST702"]
_RAW_GBS_PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}
_CARRIES = 0.85
_POOR = 0.6


def probe(evidence: Evidence) -> Verdict:
    """Find a link that is slower under load than it should be."""
    host = evidence.host
    if host is None or not host.gpus:
        return None
    gpu = used_gpu(host)
    link = gpu.link
    if link is None:
        return None
    if not link.under_load:
        return _idle(link)
    expected = _expected_gbs(link)
    rates = [rate for rate in (link.h2d_gbs, link.d2h_gbs) if rate is not None]
    is_slow = bool(expected and rates and max(rates) < _POOR * expected)
    if not is_slow and (rates or not _is_reduced(link)):
        return None
    fact = f"the link to GPU {gpu.index} runs at {_words(link.generation, link.width)} under load"
    fact += f", of {_words(link.max_generation, link.max_width)}"
    if rates and expected:
        fact += f", and moves {max(rates):.1f} GB/s where {expected:.0f} are usual"
    if link.upstream:
        fact += f"; {link.upstream}"
    if link.replays_under_load:
        fact += f"; {link.replays_under_load} packets were sent again meanwhile"
    share = 1 - max(rates) / expected if rates and expected else None
    # The rate was measured; what is usual comes from a table.
    cost = Cost(None, share, kind=Basis.INFERRED, per="copy") if share else None
    return RULE.finding(fact, None, cost)


def _is_reduced(link: Link) -> bool:
    width = link.width is not None and link.max_width is not None and link.width < link.max_width
    slow = (
        link.generation is not None
        and link.max_generation is not None
        and link.generation < link.max_generation
    )
    return width or slow


def _idle(link: Link) -> Verdict:
    if not _is_reduced(link):
        return None
    now, most = _words(link.generation, link.width), _words(link.max_generation, link.max_width)
    return abstain(
        RULE,
        f"the link was read at {now} of {most} while it was idle, as links rest",
        "run `ostinato doctor host` on the GPU's machine: it measures while it copies",
    )


def _expected_gbs(link: Link) -> float | None:
    if link.max_generation not in _RAW_GBS_PER_LANE or not link.max_width:
        return None
    return _RAW_GBS_PER_LANE[link.max_generation] * link.max_width * _CARRIES


def _words(generation: int | None, width: int | None) -> str:
    return f"generation {generation or '?'} x{width or '?'}"
