"""The result for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ostinato.bench.serve.beside import LEAST_SHARE, MOST_TIMES, Beside
from ostinato.bench.serve.judging import claims_of
from ostinato.bench.serve.rows import ServeResult, ServeRow
from ostinato.bench.serve.seen import Summary
from ostinato.bench.tables import claim_lines


def as_text(result: ServeResult) -> str:
    """Return the whole result as lines of text."""
    head = result.head
    lines = [f"{head.get('date')} {head.get('time_utc')} UTC on {head.get('device')}"]
    lines += [f"  {name}: {value}" for name, value in result.server.items()]
    for row in result.rows:
        lines += ["", *_row(row, result)]
    claims = claims_of(result)
    return "\n".join([*lines, *(["", *claim_lines(claims)] if claims else [])])


def _row(row: ServeRow, result: ServeResult) -> Iterator[str]:
    sizes = f", {row.prompt} tokens in and {row.new} out" if row.new else ""
    yield f"{row.model}, {row.load}{sizes}"
    if row.summary is None:
        yield f"  {row.error}"
        return
    one = row.summary
    steady = "" if one.steady_tok_s is None else f" ({one.steady_tok_s:,.0f} while all were busy)"
    yield (
        f"  {one.tok_s:,.0f} tokens/s{steady}, {one.requests_s:.4g} requests/s, "
        f"{one.tokens_per_frame:.2f} tokens a frame"
    )
    yield f"  first token, ms: {_named(one.ttft_ms)}; per token, ms: {_named(one.tpot_ms)}"
    yield f"  between frames, ms: {_named(one.gap_ms)}; whole, ms: {_named(one.e2e_ms)}"
    kept = result.objective
    yield (
        f"  kept (first token within {kept.ttft_s * 1e3:g} ms, {kept.tpot_s * 1e3:g} ms a token): "
        f"{one.kept:.1%} of all, {one.kept_of_accepted:.1%} of those accepted; "
        f"{one.goodput_tok_s:,.0f} tokens/s"
    )
    yield f"  {_outcomes(one)}"
    if row.beside is not None:
        yield f"  {_beside(row.beside)}"
    if one.late_ms.get("p99", 0.0) > 1.0:
        yield f"  the clients themselves were late, ms: {_named(one.late_ms)}"


def _beside(beside: Beside) -> str:
    alone = beside.alone
    if alone.error:
        return f"the engine alone: {alone.error}"
    words = []
    if beside.share is not None:
        words.append(
            f"{beside.share:.3f} of its {alone.tok_s:,.0f} tokens/s (target {LEAST_SHARE})"
        )
    if beside.times is not None:
        words.append(
            f"{beside.times:.3f} of its {alone.tpot_ms:.4g} ms a token (target {MOST_TIMES})"
        )
    if beside.added_ttft_ms is not None:
        words.append(f"{beside.added_ttft_ms:+.4g} ms to its {alone.ttft_ms:.4g} to a first token")
    return f"beside the engine alone: {', '.join(words) or 'nothing to compare'}"


def _outcomes(one: Summary) -> str:
    words = [f"{one.whole} of {one.requests} answered", f"{one.shed} shed"]
    if one.shed_without_retry:
        words.append(f"{one.shed_without_retry} of them without a Retry-After")
    if one.cancelled:
        words.append(f"{one.cancelled} cancelled by the client")
    words += [f"{number} {kind}" for kind, number in one.errors.items()] or ["no errors"]
    return ", ".join(words)


def _named(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items()) or "none"
