"""Names of metrics are promises: dashboards, alerts and scalers of others stand on them."""

import re
from pathlib import Path

import pytest

from ostinato.serve.metrics import merge, names
from ostinato.serve.metrics.names import Kind, Metric
from serve.watched import Standing, live_series, series_of, snapshots

PROMISED = (Path(__file__).parent / "metric_names.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_still_there(name: str) -> None:
    assert name in live_series(), "a name may go only as docs/guides/metrics.md says"


def test_every_name_that_is_offered_is_promised() -> None:
    assert live_series() - set(PROMISED) == set(), "add it to tests/serve/metric_names.txt"


def test_the_promises_stand_in_order_and_once() -> None:
    assert sorted(set(PROMISED)) == PROMISED


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_every_metric_of_the_list_is_offered_with_its_kind(metric: Metric) -> None:
    text = merge(snapshots())
    assert f"# TYPE {metric.name} {metric.kind.value}\n" in text
    assert set(metric.series) <= series_of(text)


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_a_name_follows_prometheus_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"(ostinato|graph)_[a-z_]+", metric.name)
    is_counter = metric.kind is Kind.COUNTER
    assert metric.name.endswith("_total") == is_counter
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.endswith("_seconds")
    assert metric.says.endswith(".")


def test_time_between_tokens_and_in_the_queue_has_buckets_below_a_millisecond() -> None:
    for buckets in (names.TOKEN_SECONDS, names.QUEUE_SECONDS):
        assert sum(bound < 0.001 for bound in buckets) >= 3
        assert list(buckets) == sorted(set(buckets))


@pytest.mark.parametrize(
    "buckets", [names.TOKEN_SECONDS, names.FIRST_TOKEN_SECONDS, names.REQUEST_SECONDS]
)
def test_the_default_objective_is_a_bound_so_that_its_burn_rate_is_exact(
    buckets: tuple[float, ...],
) -> None:
    assert 0.4 in buckets


def test_the_guide_names_every_metric_and_no_other(repository: Path) -> None:
    guide = (repository / "docs" / "guides" / "metrics.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z_]+)", guide, re.MULTILINE))
    assert rows == {metric.name for metric in names.METRICS} | {
        name for name in series_of(merge(snapshots(Standing()))) if name.startswith("process_")
    }
