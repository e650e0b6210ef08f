"""Diagnose: the dearest finding first, and a probe that fails costs its own finding alone."""

from __future__ import annotations

import pytest

from ostinato.doctor import catalog
from ostinato.doctor.catalog import RULES
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Ending, Evidence, Subject, from_json, to_json
from ostinato.doctor.finding import Cost, Finding, Place, Safety
from ostinato.doctor.probes import PROBES
from ostinato.errors import UsageError


def finding(code: str, us: float | None) -> Finding:
    return RULES[code].finding("seen", None, None if us is None else Cost(us, None))


def test_findings_are_ranked_by_what_they_cost() -> None:
    given = [finding("OST101", 5.0), finding("OST205", None), finding("OST401", 900.0)]
    report = diagnose(Evidence(), [lambda _, each=each: each for each in given])
    assert [each.code for each in report.findings] == ["OST401", "OST101", "OST205"]
    assert report.verdict.startswith("seen: 900 us a step")
    assert report.verdict.endswith("and 2 more findings")


def test_a_probe_that_fails_is_named_and_the_others_report() -> None:
    def broken(_: Evidence) -> None:
        raise ZeroDivisionError("no steps")

    report = diagnose(Evidence(), [broken, lambda _: finding("OST101", 5.0)])
    assert [each.code for each in report.findings] == ["OST101"]
    assert "ZeroDivisionError" in report.problems[0]


def test_how_a_program_ended_is_part_of_the_report() -> None:
    subject = Subject(ending=Ending.SIGNALLED, detail="SIGTERM")
    assert "ended by SIGTERM" in diagnose(Evidence(subject=subject)).problems[0]


def test_there_is_one_probe_for_each_rule_in_its_order() -> None:
    names = [probe.__module__.rpartition(".")[2].replace("_", "-") for probe in PROBES]
    assert names == [rule.name for rule in RULES.values()]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_says_why_what_to_try_and_when_it_is_wrong(rule: catalog.Rule) -> None:
    assert rule.summary
    assert rule.why
    assert rule.false_alarms
    assert rule.found_by
    assert 2 <= len(rule.remedies) <= 5
    assert all(isinstance(remedy.safety, Safety) for remedy in rule.remedies)


@pytest.mark.parametrize("word", ["OST501", "ost501", "gil-contention", "GIL_CONTENTION"])
def test_a_rule_is_found_by_code_or_name(word: str) -> None:
    assert catalog.find(word).code == "OST501"


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        catalog.find("OST999")
    assert caught.value.code == "OST7022"


def test_a_place_is_named_once_however_often_it_was_seen() -> None:
    place, other = Place("a.py", 3, column=1), Place("b.py", 9)
    found = RULES["OST101"].finding("seen", place, None, others=(Place("a.py", 3), other, other))
    assert found.others == (other,)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "OST7020"),
        ("[]", "OST7020"),
        ('{"version": 1, "steps": [{"began_us": "soon", "us": 1}]}', "OST7020"),
        ('{"version": 1, "steps": [{"us": 1}]}', "OST7020"),
        ('{"version": 1, "subject": {"ending": "lost"}}', "OST7020"),
        ('{"version": 99}', "OST7021"),
    ],
)
def test_evidence_that_cannot_be_read_is_an_error_that_says_where(text: str, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_json(text)
    assert caught.value.code == code


def test_fields_that_are_not_known_are_left_out_and_those_missing_have_their_defaults() -> None:
    assert from_json('{"version": 1, "more": 3}') == Evidence()
    assert from_json(to_json(Evidence())) == Evidence()
