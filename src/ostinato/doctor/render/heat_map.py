"""Step times over the run as a heat map in SVG.

Time goes to the right, the duration of a step upwards on a logarithmic scale.
"""

from __future__ import annotations

from math import exp, log

from ostinato.doctor.evidence import Evidence
from ostinato.units import format_us

_COLUMNS, _ROWS = 80, 18
_WIDTH, _HEIGHT = 1000, 190
_LEFT, _BOTTOM = 66, 20
_LEAST = 12


def heat_map(evidence: Evidence) -> str:
    """Return the picture; empty with too few steps to show anything."""
    steps = [(s.began_us, s.turn_us if s.turn_us is not None else s.us) for s in evidence.steps]
    steps = [(began, us) for began, us in steps if us > 0]
    if len(steps) < _LEAST:
        return ""
    first, last = steps[0][0], max(steps[-1][0], steps[0][0] + 1.0)
    low, high = _range([us for _, us in steps])
    counts: dict[tuple[int, int], int] = {}
    for began, us in steps:
        column = min(_COLUMNS - 1, int((began - first) / (last - first) * _COLUMNS))
        row = min(_ROWS - 1, max(0, int((log(us) - low) / (high - low) * _ROWS)))
        counts[(column, row)] = counts.get((column, row), 0) + 1
    most = max(counts.values())
    cells = "".join(_cell(column, row, n / most) for (column, row), n in sorted(counts.items()))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="step times over the run">'
        f"{_axis(low, high, last - first)}{cells}</svg>"
    )


def _range(times: list[float]) -> tuple[float, float]:
    """Return the logarithms of the shortest and the longest time, a little apart at least."""
    low, high = log(min(times)), log(max(times))
    margin = max(0.06, 0.04 * (high - low))
    return low - margin, high + margin


def _cell(column: int, row: int, heat: float) -> str:
    width = (_WIDTH - _LEFT) / _COLUMNS
    height = (_HEIGHT - _BOTTOM) / _ROWS
    x, y = _LEFT + column * width, (_ROWS - 1 - row) * height
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 0.8:.1f}" height="{height - 0.8:.1f}" '
        f'rx="1.5" fill="var(--accent)" opacity="{0.16 + 0.84 * heat**0.6:.2f}"/>'
    )


def _axis(low: float, high: float, span_us: float) -> str:
    marks = []
    for part in range(4):
        share = (part + 0.5) / 4
        y = (1 - share) * (_HEIGHT - _BOTTOM)
        marks.append(
            f'<text x="0" y="{y + 4:.0f}">{format_us(exp(low + share * (high - low)))}</text>'
        )
        marks.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        )
    for part in range(5):
        x = _LEFT + part / 4 * (_WIDTH - _LEFT)
        anchor = "end" if part == 4 else "start"
        words = format_us(span_us * part / 4) if part else "0"
        marks.append(f'<text x="{x:.0f}" y="{_HEIGHT - 4}" text-anchor="{anchor}">{words}</text>')
    return "".join(marks)
