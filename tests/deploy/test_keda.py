"""Autoscaling: each query is one number, right in quiet, in trouble and in the dark."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import the

pytest.importorskip("promql_parser", reason="needs promql-parser")

from deploy.promql import grouped, missing, parsed

SPEC = the("keda/scaledobject.yaml", "ScaledObject")["spec"]
TRIGGERS = {trigger["name"]: trigger for trigger in SPEC["triggers"]}
P95 = TRIGGERS["first-token-p95"]["metadata"]["query"]
QUEUE = TRIGGERS["queue"]["metadata"]["query"]
BUCKET = "ostinato_time_to_first_token_seconds_bucket"


def test_there_are_two_reasons_to_grow_and_never_more_than_four_replicas() -> None:
    assert set(TRIGGERS) == {"first-token-p95", "queue"}
    assert SPEC["maxReplicaCount"] == 4
    assert SPEC["minReplicaCount"] >= 2, "a budget that lets one go needs another"
    assert TRIGGERS["first-token-p95"]["metadata"]["threshold"] == "0.4"


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
def test_a_service_that_is_not_scraped_is_an_error_and_no_silence(trigger: dict[str, Any]) -> None:
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert SPEC["fallback"]["replicas"] >= 2
    assert SPEC["fallback"]["behavior"] == "currentReplicasIfHigher"


def test_a_latency_is_not_divided_by_the_replicas_and_a_queue_is() -> None:
    assert TRIGGERS["first-token-p95"]["metricType"] == "Value"
    assert TRIGGERS["queue"]["metricType"] == "AverageValue"


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
def test_a_query_asks_for_what_a_service_offers(
    trigger: dict[str, Any], offer: dict[str, dict[str, set[str]]]
) -> None:
    query = trigger["metadata"]["query"]
    assert parsed(query)
    assert missing(query, offer) == []
    assert grouped(query) <= {"le"}, "grouping leaves several elements"
    assert re.search(r"\bsum\b", query)


def series(instance: str, slow_from: int | None, *, ends: int = 40) -> list[dict[str, str]]:
    """One replica's first tokens, ten every 15 s: fast, and later all within 0.4 to 0.5 s."""
    labels = f'job="ostinato", instance="{instance}"'
    fast = ends if slow_from is None else slow_from
    slow = max(0, ends - fast)
    within = f"0+10x{fast}" + (f" {10 * fast}x{slow}" if slow else "")
    return [
        {"series": f'{BUCKET}{{{labels}, le="0.3"}}', "values": within},
        {"series": f'{BUCKET}{{{labels}, le="0.4"}}', "values": within},
        {"series": f'{BUCKET}{{{labels}, le="0.5"}}', "values": f"0+10x{ends}"},
        {"series": f'{BUCKET}{{{labels}, le="+Inf"}}', "values": f"0+10x{ends}"},
        {"series": f"ostinato_requests_in_flight{{{labels}}}", "values": f"1x{ends}"},
        {"series": f"ostinato_engine_waiting_requests{{{labels}}}", "values": f"12x{ends}"},
    ]


def answers(
    folder: Path, query: str, at: str, inputs: list[dict[str, str]], expected: float | None
) -> bool:
    """Whether Prometheus' own evaluation gives this number, and nothing else."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    samples = [] if expected is None else [{"labels": "{}", "value": expected}]
    test = {
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": inputs,
                "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": samples}],
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(test), encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, check=False, timeout=60
    )
    return done.returncode == 0


def test_fast_replicas_are_far_below_the_threshold(tmp_path: Path) -> None:
    inputs = series("a", None) + series("b", None)
    assert answers(tmp_path, P95, "9m", inputs, 0.285)


def test_above_400_ms_for_a_minute_is_above_the_threshold(tmp_path: Path) -> None:
    inputs = series("a", 12) + series("b", 12)  # slow from 3 min on
    assert answers(tmp_path, P95, "5m15s", inputs, 0.495)


def test_half_a_minute_of_it_is_not(tmp_path: Path) -> None:
    inputs = series("a", 12) + series("b", 12)
    assert answers(tmp_path, P95, "3m30s", inputs, 0.285)


def test_a_slow_minute_after_silence_must_be_a_whole_one(tmp_path: Path) -> None:
    labels = 'job="ostinato", instance="a"'
    silent_then_slow = "0x12 0+10x30"
    inputs = [
        {"series": f'{BUCKET}{{{labels}, le="0.4"}}', "values": "0x45"},
        {"series": f'{BUCKET}{{{labels}, le="0.5"}}', "values": silent_then_slow},
        {"series": f'{BUCKET}{{{labels}, le="+Inf"}}', "values": silent_then_slow},
        {"series": f"ostinato_requests_in_flight{{{labels}}}", "values": "1x45"},
    ]
    assert answers(tmp_path, P95, "4m", inputs, 0)
    assert answers(tmp_path, P95, "5m", inputs, 0.495)


def test_without_traffic_it_is_zero_as_long_as_the_service_is_scraped(tmp_path: Path) -> None:
    labels = 'job="ostinato", instance="a"'
    inputs = [
        {"series": f'{BUCKET}{{{labels}, le="0.4"}}', "values": "7x40"},
        {"series": f'{BUCKET}{{{labels}, le="+Inf"}}', "values": "7x40"},
        {"series": f"ostinato_requests_in_flight{{{labels}}}", "values": "0x40"},
    ]
    assert answers(tmp_path, P95, "9m", inputs, 0)


def test_a_service_that_is_scraped_no_more_gives_nothing_at_all(tmp_path: Path) -> None:
    inputs = [
        {**each, "values": each["values"] + " stale _x30"} for each in series("a", None, ends=8)
    ]
    assert answers(tmp_path, P95, "8m", inputs, None)
    assert answers(tmp_path, QUEUE, "8m", inputs, None)


def test_the_queue_is_that_of_all_replicas_together(tmp_path: Path) -> None:
    inputs = series("a", None) + series("b", None)
    assert answers(tmp_path, QUEUE, "9m", inputs, 24)


def test_the_check_itself_notices_another_number(tmp_path: Path) -> None:
    inputs = series("a", None) + series("b", None)
    assert not answers(tmp_path, QUEUE, "9m", inputs, 25)
