"""What is claimed about speed, and whether this run bears it out. Pure arithmetic on the result.

A claim that cannot be judged says why; one that is not met says so. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ostinato.bench.results import Contender, GenerationRow, GraphsResult, Row, TrafficRow
from ostinato.measure import Spread
from ostinato.units import format_us

SPEEDUP_MODELS = ("bert-128", "bert-512", "resnet50", "gpt2")
_TIMES = {"wall": "calls in a row", "alone": "one call at a time"}


class Verdict(StrEnum):
    """What became of a claim."""

    MET = "met"
    NOT_MET = "not met"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim with its target and what was measured.

    Attributes:
        about: The claim, with the model it is about.
        value: The number that is judged; None where there is none.
        target: What the number must be.
        measured: The numbers behind it, for people; or why there are none.
    """

    about: str
    target: str
    measured: str
    verdict: Verdict
    value: float | None = None

    def __str__(self) -> str:
        return f"{self.verdict.upper()}: {self.about}; target {self.target}; {self.measured}"


def claims_of(result: GraphsResult) -> tuple[Claim, ...]:
    """Return every claim about what was asked for, judged."""
    models = list(dict.fromkeys(row.model for row in result.rows))
    found = [claim for model in models for claim in _of_model(result, model)]
    for row in result.generations:
        if row.way == "accelerate" and row.model == "smollm2-decode":
            found += _of_generation(result.generations, row)
    if result.traffic is not None:
        found += _of_traffic(result.traffic)
    return tuple(found)


def _of_model(result: GraphsResult, model: str) -> Iterator[Claim]:
    def pick(contender: Contender) -> Row:
        row = result.row(model, contender)
        blank = Row(model, "", contender, error="it was not asked for")
        return row if row is not None else blank

    eager, raw, reduced = map(pick, (Contender.EAGER, Contender.RAW, Contender.REDUCED))
    owned, inside = pick(Contender.OWNED), pick(Contender.INSIDE)
    yield _ratio(
        f"{model}: host time of a call to the hand-written graph's", "host", owned, raw, most=1.5
    )
    yield _ratio(
        f"{model}: host time of a call to reduce-overhead's", "host", owned, reduced, most=0.1
    )
    for time, how in _TIMES.items():
        yield _ratio(
            f"{model}: wall time to the hand-written graph's, {how}", time, owned, raw, most=1.03
        )
        yield _ratio(
            f"{model}: wall time, compiled inside, to reduce-overhead's, {how}",
            time,
            inside,
            reduced,
            most=1.0,
        )
        if model in SPEEDUP_MODELS:
            yield _speedup(model, time, how, eager, raw, owned)
    yield _agreement(model, owned)


def _ratio(about: str, time: str, ours: Row, theirs: Row, *, most: float) -> Claim:
    target = f"at most {most:g}x"
    missing = _missing(time, ours, theirs)
    if missing:
        return Claim(about, target, missing, Verdict.NOT_MEASURED)
    mine, other = _median(ours, time), _median(theirs, time)
    measured = f"{mine / other:.3f}x: {format_us(mine)} to {format_us(other)}"
    return _judged(about, target, measured, mine / other, mine / other <= most, ours)


def _speedup(model: str, time: str, how: str, eager: Row, raw: Row, owned: Row) -> Claim:
    about = f"{model}: speed-up over eager, as a share of the hand-written graph's, {how}"
    target = "at least 0.95x"
    missing = _missing(time, eager, raw, owned)
    if missing:
        return Claim(about, target, missing, Verdict.NOT_MEASURED)
    base = _median(eager, time)
    mine, other = base / _median(owned, time), base / _median(raw, time)
    measured = f"{mine / other:.3f}x: {mine:.2f}x to {other:.2f}x"
    return _judged(about, target, measured, mine / other, mine / other >= 0.95, owned)


def _agreement(model: str, owned: Row) -> Claim:
    about, target = f"{model}: results are those of eager", "within the dtype's tolerance"
    if owned.agrees is None or owned.difference is None:
        why = owned.error or "no comparison"
        return Claim(about, target, f"{owned.contender.label}: {why}", Verdict.NOT_MEASURED)
    difference = owned.difference
    measured = f"largest difference {difference.max_abs:.3g}, largest result {difference.scale:.3g}"
    return _judged(about, target, measured, difference.max_abs, owned.agrees, owned)


def _judged(about: str, target: str, measured: str, value: float, holds: bool, ours: Row) -> Claim:
    """Judge, but never let calls that ran eagerly pass for replays."""
    if ours.fallback:
        measured = f"{measured} ({ours.fallback})"
    return Claim(about, target, measured, _verdict(holds and not ours.fallback), value)


def _verdict(holds: bool) -> Verdict:
    return Verdict.MET if holds else Verdict.NOT_MET


def _missing(time: str, *rows: Row) -> str:
    gaps = [row for row in rows if getattr(row, time) is None]
    return "; ".join(f"{row.contender.label}: {row.error or 'not timed'}" for row in gaps)


def _median(row: Row, time: str) -> float:
    spread: Spread = getattr(row, time)
    return spread.median_us


def _of_generation(rows: tuple[GenerationRow, ...], ours: GenerationRow) -> Iterator[Claim]:
    about = f"{ours.model} ({ours.setting}): tokens/s of accelerate to"
    equal, compared = ours.same_tokens or (0, 0)
    for other, wording, least in (
        ("generate", "model.generate's", 8.0),
        (Contender.RAW.label, "the hand-written graph's", 0.97),
    ):
        theirs = _row_of(rows, ours, other)
        target = f"at least {least:g}x"
        if ours.tokens_per_s is None or theirs.tokens_per_s is None:
            why = ours.error or theirs.error
            yield Claim(f"{about} {wording}", target, why, Verdict.NOT_MEASURED)
            continue
        ratio = ours.tokens_per_s / theirs.tokens_per_s
        measured = f"{ratio:.2f}x: {ours.tokens_per_s:.0f} to {theirs.tokens_per_s:.0f} tokens/s"
        if other == "generate":
            measured = f"{measured}, {equal} of {compared} answers the same"
        yield Claim(f"{about} {wording}", target, measured, _verdict(ratio >= least), ratio)


def _row_of(rows: tuple[GenerationRow, ...], ours: GenerationRow, way: str) -> GenerationRow:
    for row in rows:
        if (row.model, row.setting, row.way) == (ours.model, ours.setting, way):
            return row
    return GenerationRow(ours.model, ours.setting, way, error=f"{way} was not run")


def _of_traffic(row: TrafficRow) -> list[Claim]:
    reuse: list[tuple[str, Callable[[TrafficRow], float], int]] = [
        ("prefill calls replayed", lambda r: r.prefill.rate, row.prefill.calls),
        ("decode calls replayed", lambda r: r.decode.rate, row.decode.calls),
        ("all calls replayed", lambda r: r.both.rate, row.both.calls),
        ("all calls replayed, weighted by nodes", lambda r: r.both.rate_by_nodes, row.both.calls),
    ]
    claims = []
    for name, rate, calls in reuse:
        about, target = f"traffic: {name} after the warm-up", "at least 93 %"
        if row.error or not calls:
            why = row.error or "no calls"
            claims.append(Claim(about, target, why, Verdict.NOT_MEASURED))
        else:
            share = rate(row)
            measured = f"{share:.2%} of {calls}"
            claims.append(Claim(about, target, measured, _verdict(share >= 0.93), share))
    return [*claims, _cold_start(row)]


def _cold_start(row: TrafficRow) -> Claim:
    about = "traffic: recording time saved, against one graph per shape"
    target, saving = "at least 67 %", row.cold_start_saving
    if saving is None:
        why = row.error or "nothing was recorded"
        return Claim(about, target, why, Verdict.NOT_MEASURED)
    measured = (
        f"{saving:.1%}: {row.recording_s:.2f} s for {row.recordings} recordings, "
        f"{row.exact_recording_s:.2f} s for {row.exact_recordings}"
    )
    return Claim(about, target, measured, _verdict(saving >= 0.67), saving)
