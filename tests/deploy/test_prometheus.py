"""Alerts: Prometheus' own tool accepts them, and each one fires in a test and stays quiet in it."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("promql_parser", reason="needs promql-parser")

from deploy.promql import Asked, missing, series

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "prometheus"
GROUPS = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
TESTS = yaml.safe_load((FOLDER / "rules_test.yaml").read_text(encoding="utf-8"))["tests"]


def name_of(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    return found


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(promtool: str) -> None:
    assert f"{len(RULES)} rules found" in run(promtool, "check", "rules", FOLDER / "rules.yaml")


def test_promtool_accepts_the_scrape_configuration(promtool: str) -> None:
    run(promtool, "check", "config", FOLDER / "prometheus.yaml")


def test_the_rules_do_what_their_tests_say(promtool: str) -> None:
    run(promtool, "test", "rules", FOLDER / "rules_test.yaml")


def test_promtool_notices_a_rule_that_is_wrong(promtool: str, tmp_path: Path) -> None:
    text = (FOLDER / "rules.yaml").read_text(encoding="utf-8")
    assert "p95_1m > 0.4" in text
    worse = text.replace("p95_1m > 0.4", "p95_1m > 4")
    (tmp_path / "rules.yaml").write_text(worse, encoding="utf-8")
    first = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": TESTS[:1]}
    (tmp_path / "rules_test.yaml").write_text(yaml.safe_dump(first), encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "rules_test.yaml"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0


@pytest.mark.parametrize("rule", ALERTS, ids=name_of)
def test_an_alert_has_a_test_in_which_it_fires(rule: dict[str, Any]) -> None:
    fired = {
        case["alertname"]
        for test in TESTS
        for case in test.get("alert_rule_test", [])
        if case["exp_alerts"]
    }
    assert rule["alert"] in fired


@pytest.mark.parametrize("rule", ALERTS, ids=name_of)
def test_an_alert_says_how_bad_it_is_what_happens_and_what_it_means(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")
    assert "for" in rule


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_rule_asks_for_series_and_labels_that_a_service_offers(
    rule: dict[str, Any], offer: dict[str, dict[str, set[str]]]
) -> None:
    recorded = {each["record"]: {"job": {"ostinato"}} for each in RULES if "record" in each}
    wrong = missing(rule["expr"], {**offer, **recorded})
    # No error has happened in the service that offers them.
    assert [each for each in wrong if "reason='error'" not in each] == []


def test_the_bounds_that_the_rules_name_are_bounds_of_the_histogram(
    offer: dict[str, dict[str, set[str]]],
) -> None:
    named: set[tuple[str, str]] = set()
    for rule in RULES:
        for asked in series(rule["expr"]):
            named |= _bounds(asked)
    assert named == {("ostinato_time_to_first_token_seconds_bucket", "0.4")}
    for name, bound in named:
        assert bound in offer[name]["le"]


def _bounds(asked: Asked) -> set[tuple[str, str]]:
    return {(asked.name, value) for label, value in asked.matched if label == "le" and value}


def test_every_explanation_that_an_alert_sends_the_reader_to_is_a_command() -> None:
    text = (FOLDER / "rules.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"`(ostinato \w+)", text)) == {"ostinato explain"}
