"""Dashboards: the files are what the code draws, and every query asks for what there is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("promql_parser", reason="needs promql-parser")

from deploy.promql import missing, offered, parsed, series

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "grafana"
FILES = sorted(FOLDER.glob("*.json"))


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(file: Path) -> list[tuple[str, str]]:
    dashboard = json.loads(file.read_text(encoding="utf-8"))
    return [
        (f"{file.stem}: {panel['title']}: {target['refId']}", target["expr"])
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


QUERIES = [query for file in FILES for query in queries(file)]


def test_there_are_dashboards_with_queries() -> None:
    assert {file.stem for file in FILES} == {"ostinato-service", "ostinato-recordings"}
    assert len(QUERIES) > 50


def test_the_committed_files_are_what_the_code_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "build.py", tmp_path], check=True, timeout=60)
    drawn = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text(encoding="utf-8") for file in FILES}
    assert drawn == committed, "run `python deploy/grafana/build.py`"


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_asks_for_series_and_labels_that_a_service_offers(
    where: str, query: str, offer: dict[str, dict[str, set[str]]]
) -> None:
    assert series(query), f"{where} reads nothing"
    assert missing(query, offer) == []


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_looks_only_at_what_was_chosen(where: str, query: str) -> None:
    for asked in series(query):
        assert {"job", "instance"} <= {label for label, _ in asked.matched}, where


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_say_what_they_are_for_and_lie_beside_each_other(file: Path) -> None:
    dashboard = json.loads(file.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_data_source_is_chosen_by_whoever_looks(file: Path) -> None:
    dashboard = json.loads(file.read_text(encoding="utf-8"))
    assert {panel["datasource"]["uid"] for panel in panels(dashboard)} == {"${datasource}"}
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "job", "instance"]


def test_every_metric_of_the_list_is_on_some_dashboard_or_said_to_be_left_out() -> None:
    from ostinato.serve.metrics.names import METRICS

    shown = {asked.name for _, query in QUERIES for asked in series(query)}
    left_out = {
        "ostinato_breaker_transitions_total",  # the state says as much
        "ostinato_engine_waiting_tokens",
        "ostinato_engine_warm",
        "ostinato_engine_answers_total",  # the front ends' view is shown
    }
    unseen = {metric.name for metric in METRICS if not shown & set(metric.series)}
    assert unseen == left_out


def test_the_check_itself_notices_what_is_wrong() -> None:
    offer = offered()
    assert missing("sum(rate(ostinato_reqests_total[1m]))", offer)
    assert missing('ostinato_requests_shed_total{cause="breaker"}', offer)
    assert missing('ostinato_requests_shed_total{reason="braker"}', offer)
    assert missing("sum by (colour) (ostinato_requests_in_flight)", offer)
    assert not missing('sum by (job) (ostinato_requests_shed_total{reason="breaker"})', offer)
    with pytest.raises(ValueError, match=r"unexpected|invalid|closed|found"):
        parsed("sum(rate(ostinato_requests_total)")
