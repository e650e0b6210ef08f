"""Metrics of a real engine: what was asked of it is what they say."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llm.models.tiny_folders import write
from llm.small_engine import engine, greedy, ids
from ostinato import instruments
from ostinato.serve.metrics import Metrics


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "tiny"
    write("llama", folder)
    return folder


def values(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_an_engine_that_answered_says_so(tiny: Path) -> None:
    metrics = Metrics("engine")
    instrument = metrics.watch_graphs()
    try:
        with engine(tiny, pages=50) as made:
            metrics.watch_engine(made)
            prompts = [ids(40, seed) for seed in (1, 2, 1)]
            for prompt in prompts:
                made.ask(prompt, greedy(6, ignore_eos=True)).result(60)
            told, counted = values(metrics), made.counts()
    finally:
        instruments.remove(instrument)
    assert told["ostinato_engine_answers_total", ("length",)] == 3
    assert told["ostinato_engine_steps_total", ()] == counted.steps == 18
    assert told["graph_bucket_steps_total", ("1",)] == 18
    assert told["graph_bucket_rows_total", ("1",)] == 18
    assert told["graph_bucket_padding_total", ("1",)] == 0
    assert told["ostinato_prefix_prompt_tokens_total", ()] == 120
    assert told["ostinato_prefix_cached_tokens_total", ()] == counted.scheduler.cached_tokens > 0
    assert told["ostinato_engine_up", ()] == 1
    assert told["ostinato_kv_pages", ("used",)] == 0
    states = ("used", "cached", "free")
    assert sum(told["ostinato_kv_pages", (state,)] for state in states) == 50
    # This engine records nothing, and says so for every call.
    assert told["graph_calls_total", ("eager", "eager-backend")] >= 18
    assert told["graph_reuse_rate", ()] == 0


def test_rows_that_have_ended_and_rows_that_were_never_taken_are_padding(tiny: Path) -> None:
    metrics = Metrics("engine")
    with engine(tiny, steps_per_launch=8) as made:
        metrics.watch_engine(made)
        streams = [
            made.ask(ids(10, seed), greedy(tokens, ignore_eos=True))
            for seed, tokens in ((1, 8), (2, 2), (3, 8))
        ]
        for stream in streams:
            stream.result(60)
        told, counted = values(metrics), made.counts()
    rows = sum(value for (name, _), value in told.items() if name == "graph_bucket_rows_total")
    waste = sum(value for (name, _), value in told.items() if name == "graph_bucket_padding_total")
    assert counted.new_tokens == 18
    assert rows - waste == 18
    assert waste > 0
