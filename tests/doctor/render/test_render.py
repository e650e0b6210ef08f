"""Renderers: the same findings for people, programs, code hosts and browsers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.doctor.activity import Step
from ostinato.doctor.baseline import compare, read_baseline
from ostinato.doctor.catalog import RULES
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, Span, Stack, Subject
from ostinato.doctor.finding import Abstention, Cost, Finding, Place
from ostinato.doctor.probe import percent, times
from ostinato.doctor.render import FORMATS, render
from ostinato.doctor.render.folded import folded_stacks
from ostinato.doctor.render.html import html_page
from ostinato.doctor.report import Report
from ostinato.errors import UsageError

PLACE = Place("src/model.py", 88, column=9, function="forward", code="mask.any().item()")
FOUND = RULES["OST101"].finding(
    "the step waits for the device 12 times",
    PLACE,
    Cost(1900.0, 0.41, spread_us=110.0, median_us=1850.0, each="wait", steps=50),
    others=(Place("src/other.py", 7),),
)
SPREAD = "each wait: median 1.85 ms, IQR 110 us"
EVIDENCE = Evidence(
    subject=Subject(title="serve.py </script><b>", seconds=2.0, cpu="Xeon", cores=8),
    step_name="Model",
    steps_seen=50,
    steps=tuple(Step(i * 4600.0, 4000.0, 4600.0) for i in range(50)),
    spans=tuple(Span("step", "Model", i * 4600.0, 4000.0) for i in range(50)),
    stacks=(Stack("MainThread", ("main (a.py:1)", "<b> (a.py:2)"), 9, 3),),
)


def a_report(*findings: Finding) -> Report:
    return diagnose(EVIDENCE, [lambda _, each=each: each for each in findings])


def test_text_says_fact_place_cost_cause_remedy_and_where_to_read_more() -> None:
    lines = render(a_report(FOUND), "text").splitlines()
    block = lines[lines.index("", 1) + 1 :]
    assert block[:4] == [
        "OST101 host-sync-in-step: the step waits for the device 12 times",
        "  where  src/model.py:88 `mask.any().item()` in forward",
        "  also   src/other.py:7",
        f"  cost   1.90 ms a step (41% of the step); measured, 50 steps, {SPREAD}",
    ]
    assert block[-1] == "  more   ostinato explain OST101"
    assert max(map(len, lines)) <= 100


def test_an_abstention_says_what_settles_it() -> None:
    abstention = Abstention("OST102", "launch-bound-step", "nobody profiled", "use --deep")
    report = diagnose(EVIDENCE, [lambda _: abstention])
    assert "OST102 launch-bound-step: nobody profiled" in render(report, "text")
    assert "use --deep" in render(report, "text")


def test_json_holds_code_place_and_cost() -> None:
    document = json.loads(render(a_report(FOUND), "json"))
    first = document["findings"][0]
    assert (first["code"], first["place"]["line"], first["cost"]["share"]) == ("OST101", 88, 0.41)


def test_sarif_has_the_rule_the_line_and_the_related_line() -> None:
    run = json.loads(render(a_report(FOUND), "sarif"))["runs"][0]
    rule, result = run["tool"]["driver"]["rules"][0], run["results"][0]
    location = result["locations"][0]["physicalLocation"]
    assert (rule["id"], result["ruleId"], result["ruleIndex"]) == ("OST101", "OST101", 0)
    assert location["artifactLocation"]["uri"] == "src/model.py"
    assert location["region"]["startLine"] == 88
    assert len(result["relatedLocations"]) == 1


def test_github_annotations_are_one_line_each_and_escaped() -> None:
    place = replace(PLACE, path="a,b:c.py")
    found = replace(FOUND, place=place, fact="100% of\nit")
    (line,) = render(a_report(found), "github").splitlines()
    assert line.startswith("::warning title=OST101 host-sync-in-step,file=a%2Cb%3Ac.py,line=88,")
    assert "100%25 of%0Ait" in line


@pytest.mark.parametrize("form", FORMATS)
def test_a_report_without_findings_renders(form: str) -> None:
    assert isinstance(render(a_report(), form), str)


def test_an_unknown_format_is_an_error_that_lists_them() -> None:
    with pytest.raises(UsageError, match="yaml") as caught:
        render(a_report(), "yaml")
    assert caught.value.code == "OST7025"


def test_the_page_stands_alone() -> None:
    page = html_page(a_report(FOUND), EVIDENCE)
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", page)
    for part in ("Findings", "Timeline", "Heat map", "Flame graph", "OST101", "1.90 ms", "41%"):
        assert part in page


def test_names_in_the_page_cannot_become_markup() -> None:
    page = html_page(a_report(FOUND), EVIDENCE)
    assert "<b> (a.py" not in page
    assert page.count("</script>") == 2
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["stacks"][0][1][1] == "<b> (a.py:2)"


def test_a_page_without_pictures_is_still_a_page() -> None:
    page = html_page(diagnose(Evidence()), Evidence())
    assert "Nothing was found" in page
    assert "Timeline" not in page


def test_folded_stacks_count_the_wait_for_the_gil_apart() -> None:
    assert folded_stacks(EVIDENCE.stacks).splitlines() == [
        "MainThread;main (a.py:1);<b> (a.py:2) 6",
        "MainThread;main (a.py:1);<b> (a.py:2);[waits for the GIL] 3",
    ]


def test_a_baseline_tells_new_dearer_and_gone_apart(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    path.write_text(render(a_report(FOUND, RULES["OST504"].finding("gc")), "json"))
    dearer = replace(FOUND, cost=Cost(4000.0, 0.6))
    moved = replace(dearer, place=replace(PLACE, line=90))  # the same line of source, further down
    changes = compare(read_baseline(path), a_report(moved, RULES["OST401"].finding("math")))
    worse = [change.words for change in changes if change.is_worse]
    assert len(worse) == 2
    assert any(words.startswith("new: OST401") for words in worse)
    assert any("1.90 ms, now 4.00 ms" in words for words in worse)
    assert [c.words for c in changes if not c.is_worse] == ["gone: OST504"]


def test_the_same_report_has_no_changes(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    path.write_text(render(a_report(FOUND), "json"))
    assert compare(read_baseline(path), a_report(FOUND)) == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "no list of findings"),
        ("17", "no list of findings"),
        ('{"findings": {}}', "no list of findings"),
        ('{"findings": [{}]}', "which have a place and a cost each"),
        ('{"findings": ["OST101"]}', "which have a place and a cost each"),
        ('{"findings": [], "step_us": "long"}', "which have a place and a cost each"),
        ('{"$schema": "sarif", "version": "2.1.0", "runs": []}', "it is SARIF"),
    ],
)
def test_a_baseline_that_is_no_report_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_baseline(path)
    assert caught.value.code == "OST7026"
    assert why in str(caught.value)
    assert "Error" not in str(caught.value)


def test_counts_and_shares_read_as_people_say_them() -> None:
    assert [times(n) for n in (1, 2, 4.2, 12)] == ["once", "twice", "4.2 times", "12 times"]
    assert [percent(share) for share in (0.004, 0.41, 1.0)] == ["0.4%", "41%", "100%"]
