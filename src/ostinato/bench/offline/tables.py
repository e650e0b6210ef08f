"""The result for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ostinato.bench.offline.results import ArrivalsRow, OfflineResult, PrefixesRow, claims_of
from ostinato.bench.tables import claim_lines


def as_text(result: OfflineResult) -> str:
    """Return the whole result as lines of text."""
    head = result.head
    lines = [f"{head.get('date')} {head.get('time_utc')} UTC on {head.get('device')}"]
    if result.arrivals is not None:
        lines += ["", *_arrivals(result.arrivals, result)]
    if result.prefixes is not None:
        lines += ["", *_prefixes(result.prefixes)]
    claims = claims_of(result)
    return "\n".join([*lines, *(["", *claim_lines(claims)] if claims else [])])


def _arrivals(row: ArrivalsRow, result: OfflineResult) -> Iterator[str]:
    yield f"{row.model}: {row.requests} requests; {row.trace}"
    if row.error:
        yield f"  {row.error}"
        return
    kept = result.objective
    yield f"  all at once: {row.full_tok_s:,.0f} new tokens/s"
    yield (
        f"  {row.speed:.3g} times faster than in the trace, {row.load:.0%} of that: "
        f"{row.tok_s:,.0f} new tokens/s, {row.goodput_tok_s:,.0f} of them in requests with a first "
        f"token within {kept.ttft_s:g} s and {kept.tpot_s * 1e3:g} ms per token ({row.kept:.1%})"
    )
    yield f"  first token, s: {_named(row.ttft_s)}; per token, ms: {_named(row.tpot_s, 1e3)}"
    yield f"  preemptions: {row.preemptions}"


def _named(values: Mapping[str, float], factor: float = 1.0) -> str:
    return ", ".join(f"{name} {value * factor:.3g}" for name, value in values.items())


def _prefixes(row: PrefixesRow) -> Iterator[str]:
    yield f"{row.model}: {row.requests} requests; {row.trace}"
    yield (
        f"  {row.error}"
        if row.error
        else f"  {row.hit:.1%} of the prompt tokens found, ideal {row.ideal:.1%}, "
        f"in {row.seconds:.1f} s"
    )
