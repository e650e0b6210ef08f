"""The page's document: a plain function of the metrics of all processes."""

import msgspec
import pytest

from ostinato.serve.metrics import Metrics, Shed, add_up
from ostinato.serve.slo import Burn, State
from ostinato.serve.ui.numbers import Numbers, numbers
from serve.watched import busy_snapshots


def document(*snapshots: bytes, why: str | None = None) -> Numbers:
    return numbers(add_up(list(snapshots)), at=5.0, why=why)


def test_a_busy_service_shows_what_happened_in_all_its_processes() -> None:
    shown = document(*busy_snapshots())
    assert (shown.model, shown.version) == ("smollm2", "initial")
    assert (shown.tokens, shown.prompt_tokens, shown.requests) == (18, 20, 2)
    assert shown.in_flight == 0
    assert shown.ended == {"stop": 2}
    assert shown.shed == {reason.value: 1 for reason in Shed}
    assert (shown.replayed, shown.recorded, shown.eager) == (1, 1, {"host-sync": 1})
    assert list(shown.buckets) == ["4", "8"]
    assert shown.buckets["4"].padding == 5
    assert shown.pages == {"used": 40, "cached": 20, "free": 40}
    assert (shown.running, shown.rows, shown.waiting) == (5, 256, 3)
    assert shown.graph_bytes == 1000
    assert (shown.prefix_asked, shown.prefix_found) == (1000, 400)
    assert (shown.breaker, shown.rung) == (2, 1)
    (burn,) = shown.burns
    assert (burn.objective, burn.length_class, burn.rate) == ("ttft", "short", 2.0)


def test_a_histogram_is_summed_over_its_labels_and_taken_apart_into_buckets() -> None:
    front, other = Metrics("front-0"), Metrics("front-1")
    front.first_token(0.02, "short")
    front.first_token(0.02, "long")
    other.first_token(100.0, "long")
    shown = document(front.snapshot(), other.snapshot()).first_token
    assert len(shown.counts) == len(shown.bounds) + 1
    assert shown.counts[shown.bounds.index(0.02)] == 2
    assert shown.counts[-1] == 1, "above all bounds"
    assert sum(shown.counts) == 3


def test_buckets_come_in_the_order_of_their_size() -> None:
    metrics = Metrics("engine")
    for rows in (16, 2, 128):
        metrics.batch_ran(rows, rows)
    assert list(document(metrics.snapshot()).buckets) == ["2", "16", "128"]


def test_a_service_that_has_done_nothing_has_a_document_too() -> None:
    shown = document(Metrics("front-0").snapshot(), why="the engine is not there")
    assert shown.why == "the engine is not there"
    assert (shown.tokens, shown.model, shown.buckets, shown.eager) == (0, "", {}, {})
    assert sum(shown.first_token.counts) == 0


def test_nothing_at_all_has_one_too() -> None:
    shown = document()
    assert shown.first_token.bounds == []
    assert shown.pages == {}


@pytest.mark.parametrize("state", State)
def test_the_breaker_is_a_number_that_the_page_has_a_word_for(state: State) -> None:
    metrics = Metrics("front-0")
    metrics.breaker(state, 1, [Burn("itl", "medium", 1.5, 0.0, 30)])
    shown = document(metrics.snapshot())
    assert shown.breaker == {State.CLOSED: 0, State.RECOVERING: 1, State.OPEN: 2}[state]


def test_the_document_is_json_that_can_be_read_back() -> None:
    shown = document(*busy_snapshots())
    text = msgspec.json.encode(shown)
    assert msgspec.json.decode(text, type=Numbers) == shown
    assert len(text) < 4096
