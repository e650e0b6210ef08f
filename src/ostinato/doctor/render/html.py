"""A report as one page of HTML that needs nothing else: verdict, findings, and three pictures.

Style and script stand in the page itself, and so does what the pictures are drawn from; the page
can be mailed, kept with a build, and opened without a network.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files

from ostinato.doctor.evidence import Evidence
from ostinato.doctor.finding import Cost, Finding, Place
from ostinato.doctor.interpreter_use import LineUse
from ostinato.doctor.probe import percent, spread_words
from ostinato.doctor.render.heat_map import heat_map
from ostinato.doctor.render.text import leaf, short_path, via
from ostinato.doctor.report import Report, around_the_steps, lines_outside, what_was_thinned
from ostinato.units import format_us

_MOST_SPANS = 4000
_MOST_STACKS = 1500


def html_page(report: Report, evidence: Evidence) -> str:
    """Return the page."""
    parts = [
        _header(report),
        _findings(report),
        _not_told(report),
        _timeline(evidence),
        _heat(evidence),
        _flame(evidence),
        _notes(report),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}: ostinato doctor</title>\n"
        f"<style>{_asset('page.css')}</style></head>\n<body><main>\n{body}\n"
        "<footer>Written by <code>ostinato doctor</code>. Every code is explained by "
        "<code>ostinato explain CODE</code>.</footer>\n</main>\n"
        f'<div id="tip"></div>\n<script type="application/json" id="data">{_data(evidence)}'
        f"</script>\n<script>{_asset('page.js')}</script>\n</body></html>\n"
    )


def _asset(name: str) -> str:
    return (files("ostinato.doctor.render") / name).read_text(encoding="utf-8")


def _data(evidence: Evidence) -> str:
    spans = sorted(evidence.spans, key=lambda span: span.began_us)[-_MOST_SPANS:]
    stacks = evidence.stacks[:_MOST_STACKS]
    document = {
        "spans": [[s.track, s.name, round(s.began_us, 1), round(s.us, 2)] for s in spans],
        "stacks": [[s.thread, s.frames, s.samples, s.waits_for_gil] for s in stacks],
    }
    # A name in the data must not be able to end the script that holds it.
    return json.dumps(document, ensure_ascii=False).replace("<", "\\u003c")


def _header(report: Report) -> str:
    chips = []
    if report.steps:
        chips.append(f"<b>{report.steps}</b> steps of {escape(report.step_name)}")
    if report.step_us is not None:
        chips.append(f"<b>{format_us(report.step_us)}</b> a step")
    if report.seconds:
        watched = format_us(report.seconds * 1e6)
        chips.append(f"watched for <b>{watched}</b>{around_the_steps(report)}")
    thinned = what_was_thinned(report)
    chips += [escape(thinned)] * bool(thinned)
    count = len(report.findings)
    chips.append(f"<b>{count}</b> finding{'s' * (count != 1)}")
    if report.machine:
        chips.append(escape(report.machine))
    listed = "".join(f"<li>{chip}</li>" for chip in chips)
    return (
        '<header><p class="brand"><b>Ostinato</b> doctor</p>'
        f"<h1>{escape(report.title)}</h1>"
        f'<p class="verdict">{_prose(report.verdict)}</p>'
        f'<ul class="chips">{listed}</ul></header>{_times(report)}'
    )


def _times(report: Report) -> str:
    busy = _lines(
        "Where the time goes",
        "Of the time that the thread which makes the steps ran, by the line that called torch or "
        "computed.",
        report.busy,
    )
    return busy + _lines(
        "Outside of the steps",
        "Of all the time since the steps began, by the line that ran or waited between them.",
        lines_outside(report),
    )


def _lines(title: str, hint: str, uses: tuple[LineUse, ...]) -> str:
    if not uses:
        return ""
    rows = "".join(
        f'<li><i style="width:{100 * line.share:.0f}%"></i><b>{line.share:.0%}</b>'
        f"<span>{_prose(leaf(line.place))}</span></li>"
        for line in uses
    )
    return f'<h2>{title}</h2><p class="hint">{hint}</p><ol class="busy">{rows}</ol>'


def _prose(words: str) -> str:
    """Escape text, and set what stands between backticks as code."""
    parts = escape(words).split("`")
    return "".join(
        f"<code>{part}</code>" if number % 2 and number < len(parts) - 1 else part
        for number, part in enumerate(parts)
    )


def _findings(report: Report) -> str:
    if not report.findings:
        return (
            '<h2>Findings</h2><article class="finding quiet"><h3>Nothing was found</h3>'
            '<p class="fact">What could not be told stands below.</p></article>'
        )
    cards = "\n".join(_finding(finding) for finding in report.findings)
    return f'<h2>Findings</h2><p class="hint">The dearest first.</p>\n{cards}'


def _finding(finding: Finding) -> str:
    remedies = "".join(
        f'<li>{_prose(remedy.what)} <span class="safety {remedy.safety}">'
        f"{remedy.safety}</span></li>"
        for remedy in finding.remedies
    )
    places = [finding.place] if finding.place is not None else []
    return (
        f'<article class="finding" id="{finding.code}"><h3><code>{finding.code}</code>'
        f"{escape(finding.name)}</h3>{_cost(finding.cost)}"
        f'<p class="fact">{_prose(finding.fact)}</p>'
        f"{''.join(_place(place) for place in (*places, *finding.others))}"
        f'<p class="why">{_prose(finding.why)}</p><ul class="remedies">{remedies}</ul>'
        f'<p class="more">False alarms: {_prose(finding.false_alarms)} '
        f"<code>ostinato explain {finding.page}</code></p></article>"
    )


def _place(place: Place) -> str:
    where = f"{short_path(place.path)}:{place.line}"
    if place.function not in ("", "<module>"):
        where += f" in {place.function}"
    inner = via(place)
    inside = f"<span>within {escape(inner)}</span>" if inner else ""
    return f'<div class="place"><span>{escape(where)}</span>{escape(place.code)}{inside}</div>'


def _cost(cost: Cost | None) -> str:
    if cost is None:
        return '<div class="cost"><small>no cost of its own was measured</small></div>'
    parts = []
    share = cost.share
    if cost.us_per_step is not None:
        parts.append(f"<b>{format_us(cost.us_per_step)}</b><small>a {escape(cost.per)}</small>")
    if share is not None:
        whole = cost.per if cost.per in ("step", "token", "request") else "time watched"
        width = min(100.0, 100 * share)
        parts.append(f'<div class="bar"><i style="width:{width:.1f}%"></i></div>')
        parts.append(f"<small>{percent(share)} of the {whole}</small>")
    words = str(cost.kind)
    if cost.steps:
        words += f", {cost.steps} {escape(cost.per)}s"
    parts.append(f"<small>{words}</small>")
    spread = spread_words(cost)
    parts += [f"<small>{escape(spread)}</small>"] * bool(spread)
    return f'<div class="cost">{"".join(parts)}</div>'


def _not_told(report: Report) -> str:
    if not report.abstentions:
        return ""
    rows = "".join(
        f"<li><code>{each.code}</code> {escape(each.name)}: {_prose(each.why)}"
        f"<small>to settle it: {_prose(each.settles_it)}</small></li>"
        for each in report.abstentions
    )
    return f'<h2>What could not be told</h2><ul class="list">{rows}</ul>'


def _notes(report: Report) -> str:
    if not report.problems:
        return ""
    rows = "".join(f"<li>{_prose(problem)}</li>" for problem in report.problems)
    return f'<h2>Notes</h2><ul class="list">{rows}</ul>'


def _timeline(evidence: Evidence) -> str:
    if not evidence.spans:
        return ""
    return (
        '<h2>Timeline</h2><p class="hint">Steps, and what interrupts them. Scroll to zoom, drag to '
        'move.</p><div class="plot"><canvas id="timeline"></canvas></div>'
    )


def _heat(evidence: Evidence) -> str:
    drawn = heat_map(evidence)
    if not drawn:
        return ""
    return (
        '<h2>Heat map of steps</h2><p class="hint">How long steps took over the run: the darker, '
        f'the more of them. Two bands are two kinds of step.</p><div class="plot">{drawn}</div>'
    )


def _flame(evidence: Evidence) -> str:
    if not evidence.stacks:
        return ""
    return (
        '<h2>Flame graph</h2><p class="hint">Where the threads were, by samples; red waited for '
        "the GIL. Click a frame to enlarge it.</p>"
        '<div class="plot"><canvas id="flame"></canvas></div>'
    )
