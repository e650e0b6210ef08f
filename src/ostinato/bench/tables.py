"""The result for people: a table for each part, then every claim on a line of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.bench.claims import Claim, Verdict, claims_of
from ostinato.bench.results import GenerationRow, GraphsResult, Reuse, Row, TrafficRow
from ostinato.measure import Spread
from ostinato.units import format_bytes, format_us

_FORWARD = (
    "",
    "host",
    "one call",
    "in a row",
    "first call",
    "recording",
    "reserved",
    "reported",
    "differs",
    "",
)
_GENERATION = ("", "tokens/s", "an answer", "first call", "same tokens", "")


def as_text(result: GraphsResult) -> str:
    """Return the whole result as lines of text."""
    parts = [_head(result)]
    for model in dict.fromkeys(row.model for row in result.rows):
        rows = [row for row in result.rows if row.model == model]
        setting = next((row.setting for row in rows if row.setting), "")
        parts.append(f"{model}: {setting}\n" + aligned(_FORWARD, [_cells(row) for row in rows]))
    for model, setting in dict.fromkeys((row.model, row.setting) for row in result.generations):
        ways = [r for r in result.generations if (r.model, r.setting) == (model, setting)]
        title = f"{model}: {setting}, {max(way.new_tokens for way in ways)} new tokens\n"
        parts.append(title + aligned(_GENERATION, [_generation_cells(way) for way in ways]))
    if result.traffic is not None:
        parts.append("\n".join(_traffic(result.traffic)))
    parts.append("\n".join(claim_lines(claims_of(result))))
    return "\n\n".join(parts)


def claim_lines(claims: Sequence[Claim]) -> list[str]:
    """Return how many claims are met, and every claim, those that are not met first."""
    order = [Verdict.NOT_MET, Verdict.NOT_MEASURED, Verdict.MET]
    ranked = sorted(claims, key=lambda claim: order.index(claim.verdict))
    counts = ", ".join(
        f"{sum(claim.verdict is verdict for claim in claims)} {verdict}" for verdict in Verdict
    )
    return [f"claims: {counts}", *(f"  {claim}" for claim in ranked)]


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines whose cells stand under their heads; the last one may be of any length."""
    lines = [head, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head) - 1)]

    def line_of(cells: Sequence[str]) -> str:
        name, *numbers, rest = cells
        parts = [name.ljust(widths[0])]
        parts += [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        return "  ".join([*parts, rest]).rstrip()

    return "\n".join(map(line_of, lines))


def _head(result: GraphsResult) -> str:
    machine = result.head["machine"]
    accelerator = machine.get("accelerator")
    where = accelerator["name"] if accelerator else machine["cpu"]
    versions = ", ".join(f"{name} {value}" for name, value in result.head["versions"].items())
    lines = [f"{where}, {result.head['date']}", versions]
    if result.is_tiny:
        lines.append("toy sizes: these numbers show that the benchmark works, and nothing else")
    elif not accelerator:
        lines.append("a CPU shows the semantics; the speed-ups are a GPU's")
    lines.append("batch 1; medians of interleaved rounds (interquartile ranges in the JSON)")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.contender.label,
        _time(row.host),
        _time(row.alone),
        _time(row.wall),
        _seconds(row.first_call_s),
        _seconds(row.recording_s),
        _bytes(row.kept_bytes),
        _bytes(row.reported_bytes),
        f"{row.difference.max_abs:.2g}" if row.difference else "-",
        "; ".join(filter(None, (_disagreement(row), row.fallback, row.note, row.error))),
    )


def _disagreement(row: Row) -> str:
    return "DIFFERS FROM EAGER" if row.agrees is False else ""


def _generation_cells(row: GenerationRow) -> tuple[str, ...]:
    equal = f"{row.same_tokens[0]} of {row.same_tokens[1]}" if row.same_tokens else "-"
    return (
        row.way,
        f"{row.tokens_per_s:.0f}" if row.tokens_per_s else "-",
        _time(row.answer),
        _seconds(row.first_call_s),
        equal,
        "; ".join(filter(None, (row.note, row.parting, row.error))),
    )


def _traffic(row: TrafficRow) -> list[str]:
    lines = [f"traffic: {row.model}", f"  lengths: {row.source}; {row.fitted}"]
    if row.error:
        return [*lines, f"  {row.error}"]
    sizes = ", ".join(map(str, row.buckets))
    lines += [
        f"  buckets learnt from the first {row.learnt_from} requests: {sizes}",
        f"  {row.requests} requests after them, {row.padded_share:.1%} of prefill rows padding",
        f"  replayed: prefill {_reuse(row.prefill)}; decode {_reuse(row.decode)}",
        f"  replayed together: {_reuse(row.both)}, {row.both.rate_by_nodes:.2%} of nodes",
        f"  recorded: {row.recordings} in {row.recording_s:.2f} s",
        f"  one graph per prompt length: {row.exact_recordings} in {row.exact_recording_s:.2f} s",
        f"    over {row.exact_requests} requests; prefill replayed {_reuse(row.exact_prefill)}",
    ]
    if row.reasons:
        reasons = ", ".join(f"{count} x {word}" for word, count in row.reasons.items())
        lines.append(f"  not replayed: {reasons}")
    return [*lines, f"  {row.note}"] if row.note else lines


def _reuse(reuse: Reuse) -> str:
    return f"{reuse.replays} of {reuse.calls} ({reuse.rate:.2%})"


def _time(spread: Spread | None) -> str:
    return format_us(spread.median_us) if spread else "-"


def _seconds(seconds: float | None) -> str:
    return format_us(seconds * 1e6) if seconds is not None else "-"


def _bytes(count: int | None) -> str:
    return format_bytes(count) if count is not None else "-"
