"""The result for people: a table for each model, then the claims."""

from __future__ import annotations

from ostinato.bench.decode.judging import claims_of
from ostinato.bench.decode.rows import DecodeResult, DecodeRow
from ostinato.bench.tables import aligned, claim_lines
from ostinato.units import format_bytes

_HEAD = (
    "",
    "batch",
    "ms/token",
    "tokens/s",
    "first, ms",
    "device, ms",
    "host",
    "floor, ms",
    "reached",
    "",
)
_PARTS = ("", "kernels", "us", "MB", "floor, us", "lost, us", "")


def as_text(result: DecodeResult) -> str:
    """Return the whole result as lines of text."""
    head = result.head
    when = f"{head.get('date')} {head.get('time_utc')} UTC on {head.get('device')}"
    read, products = result.rates.read_tb_s, result.rates.products_tflop_s
    parts = [f"{when}; reads at {read:.2f} TB/s, multiplies at {products:.0f} TFLOP/s"]
    for model in dict.fromkeys(row.model for row in result.rows):
        rows = [row for row in result.rows if row.model == model]
        facts = dict(result.models.get(model, {}))
        weights = format_bytes(int(facts.pop("read_bytes", 0)))
        said = ", ".join(f"{key} {value}" for key, value in facts.items())
        title = f"{model}: {weights} read per step; {said}"
        parts.append(title + "\n" + aligned(_HEAD, [_cells(row) for row in rows]))
        for row in rows:
            parts += [_parts(row)] if row.parts else []
            parts += [_kernels(row)] if row.kernels or row.first_busy_ms is not None else []
    claims = claims_of(result)
    if claims:
        parts.append("\n".join(claim_lines(claims)))
    return "\n\n".join(parts)


def _parts(row: DecodeRow) -> str:
    """Say part by part what a step took, and what of it neither bytes nor operations explain."""
    lines = []
    for each in row.parts:
        known = each.floor_us is not None
        cells = (
            each.name,
            f"{each.per_step:.0f}",
            f"{each.us:.1f}",
            f"{each.moved / 1e6:.1f}" if known else "-",
            _number(each.floor_us, ".1f"),
            f"{each.us - (each.floor_us or 0):.1f}",
            "",
        )
        lines.append(cells)
    us = sum(each.us for each in row.parts)
    title = f"{row.engine}, {row.model}, batch {row.batch}: where a step of {us:.0f} us goes\n"
    return title + aligned(_PARTS, lines)


def _kernels(row: DecodeRow) -> str:
    name = f"{row.engine}, {row.model}, batch {row.batch}"
    us = sum(each.us for each in row.kernels)
    lines = [f"{name}: kernels of a step, {us:.1f} us"]
    lines += [f"{each.us:9.1f}  {each.per_step:6.1f} x {each.name}" for each in row.kernels[:12]]
    if row.first_busy_ms is not None:
        handed_in = _number(row.submit_ms, ".2f")
        lines.append(
            f"{name}: first tokens, kernels run for {row.first_busy_ms:.2f} ms of "
            f"{_number(row.ttft_ms, '.2f')}; handed in within {handed_in}"
        )
        lines += [
            f"{each.us:9.1f}  {each.per_step:6.0f} x {each.name}" for each in row.first_kernels[:6]
        ]
    return "\n".join(lines)


def _cells(row: DecodeRow) -> tuple[str, ...]:
    return (
        row.engine,
        str(row.batch),
        _number(row.tpot_ms, ".3f"),
        _number(row.tok_s, ",.0f"),
        _number(row.ttft_ms, ".2f"),
        _number(row.span_ms, ".3f"),
        _number(row.host_ratio, ".3f"),
        _number(row.floor_ms, ".3f"),
        _number(row.floor_share, ".1%"),
        row.error or row.setting,
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
