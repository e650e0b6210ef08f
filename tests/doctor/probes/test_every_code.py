"""Every code of the catalogue says all that a finding must, and is seen to fire and be quiet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from doctor.probes.test_probes import FIRES, QUIET
from doctor.seeded.suite import EVIDENCE, programs
from ostinato import explain
from ostinato.doctor import catalog
from ostinato.doctor.activity import LostGradient
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, from_json
from ostinato.doctor.finding import Basis, Finding, Place, Safety
from ostinato.doctor.probe import cost_words, spread_words

LINE = Place("train.py", 7, code="loss = loss * scale.item()")
LOST = Evidence(lost_gradients=(LostGradient("Tensor.item", LINE, LINE, 3),))

NO_LINE = {
    "OST103": "many kernels of many lines",
    "OST601": "the allocator serves every line",
    "OST602": "memory grows with the steps, and no line of it stands out",
    "OST603": "a full device is every line's doing",
    "OST701": "where the process was started",
    "OST702": "a link of the machine",
    "OST703": "another process",
    "OST704": "a clock of the machine",
}
"""Codes that are no line's doing, and why."""

NO_COST = {
    "OST105": "a wrong result, not a slow one",
    "OST205": "a wrong result, not a slow one",
    "OST303": "what the graphs would have saved is not known without them",
    "OST601": "memory, not time",
    "OST602": "memory, not time",
    "OST701": "what the other node costs depends on what is read, and when",
}
"""Codes that have no cost in time, and why."""


@cache
def findings() -> dict[str, tuple[Finding, ...]]:
    """Return what each code finds in evidence, written by hand and recorded."""
    found: dict[str, list[Finding]] = {}
    for evidence in evidences():
        for finding in diagnose(evidence).findings:
            found.setdefault(finding.code, []).append(finding)
    return {code: tuple(each) for code, each in found.items()}


def evidences() -> Iterator[Evidence]:
    yield from (evidence for _, evidence, _ in FIRES.values())
    yield LOST
    for path in sorted(EVIDENCE.glob("*.json")):
        yield from_json(path.read_text(encoding="utf-8"))


each_code = pytest.mark.parametrize("code", sorted(catalog.RULES))


@each_code
def test_a_finding_says_what_it_is_why_and_what_to_try(code: str) -> None:
    for finding in findings()[code]:
        assert re.search(r"\w+ \w+", finding.fact)
        assert "None" not in finding.fact
        assert finding.why.endswith(".")
        assert finding.false_alarms.endswith(".")
        assert finding.page == code
        assert finding.remedies
        assert all(remedy.what and remedy.safety in Safety for remedy in finding.remedies)


@each_code
def test_a_finding_names_its_line_where_there_is_one(code: str) -> None:
    named = [finding.place is not None for finding in findings()[code]]
    assert any(named) is (code not in NO_LINE), "see NO_LINE"


@each_code
def test_a_cost_says_how_it_is_known_and_how_much_it_varies(code: str) -> None:
    costs = [finding.cost for finding in findings()[code] if finding.cost is not None]
    assert bool(costs) is (code not in NO_COST), "see NO_COST"
    for cost in costs:
        assert cost.us_per_step is not None or cost.share is not None
        assert cost.kind in Basis
        assert str(cost.kind) in cost_words(cost)
        assert spread_words(cost)
        assert (cost.spread_us is None) is bool(cost.no_spread)
        assert (cost.spread_us is None) or cost.median_us is not None


@each_code
def test_a_page_tells_what_why_what_to_try_and_when_it_is_wrong(code: str) -> None:
    sections = explain.sections(explain.find(code))
    for heading in ("What it means", "Why it costs", "What to try and how safe", "False alarms"):
        assert len(sections[heading].split()) >= 8, heading


NOT_SEEN_LIVE = {"OST701", "OST702", "OST703", "OST704"}
"""Codes that no machine at hand could show: they fire on evidence that was written by hand."""


@each_code
def test_a_program_shows_the_code_or_its_page_says_that_none_has(code: str) -> None:
    planted = {program.expect for program in programs("planted")}
    assert (code in planted) is (code not in NOT_SEEN_LIVE)
    assert ("Not seen live" in explain.find(code).text) is (code in NOT_SEEN_LIVE)
    assert findings()[code]


LOOKS_LIKE = {
    "OST101": "result_handed_out_once.py",
    "OST102": "a-device-that-the-host-waits-for",
    "OST103": "a-busy-device",
    "OST104": "small-copies",
    "OST105": "constant_weight_by_detach.py",
    "OST201": "recorded-already",
    "OST202": "lengths-in-buckets",
    "OST203": "recaptures-now-and-then",
    "OST204": "weights_updated_in_place.py",
    "OST205": "autocast-switched-off",
    "OST206": "steady_recording.py",
    "OST207": "a-graph-that-pays",
    "OST208": "flag_with_two_values.py",
    "OST301": "compiled_once.py",
    "OST302": "one-recompilation",
    "OST303": "compiled_for_all_sizes.py",
    "OST401": "decoding-on-math",
    "OST402": "attention_as_it_should_be.py",
    "OST501": "one-thread-of-python",
    "OST502": "a-lock-that-nobody-wants",
    "OST503": "one-slow-callback",
    "OST504": "collections-between-steps",
    "OST505": "many-threads-that-never-lack-a-cpu",
    "OST601": "a-cache-of-large-pieces",
    "OST602": "a-cache-that-fills-up",
    "OST603": "an-engine-that-takes-ninety-per-cent",
    "OST701": "memory-on-the-gpus-node",
    "OST702": "a-full-link",
    "OST703": "mps",
    "OST704": "a-few-per-cent-for-power",
}
"""What only looks like a code: evidence in QUIET, or a healthy program that test_seeded watches."""


@each_code
def test_what_only_looks_like_the_code_leaves_it_quiet(code: str) -> None:
    name = LOOKS_LIKE[code]
    if name.endswith(".py"):
        assert name.removesuffix(".py") in {program.name for program in programs("healthy")}
    else:
        assert code not in {finding.code for finding in diagnose(QUIET[name]).findings}
