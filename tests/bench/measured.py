"""Rows as a benchmark would have measured them, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from ostinato.bench import Contender, GenerationRow, GraphsResult, Row, TrafficRow
from ostinato.bench.results import Difference, Reuse
from ostinato.measure import Spread

HEAD: dict[str, Any] = {
    "benchmark": "graphs",
    "date": "2026-11-29",
    "machine": {"cpu": "a CPU", "accelerator": {"name": "a GPU"}},
    "versions": {"torch": "2.13.0"},
}

# What an H200 gave once, in microseconds: (host, wall).
_TYPICAL = {
    Contender.EAGER: (10000.0, 10600.0),
    Contender.REDUCED: (455.0, 979.0),
    Contender.RAW: (30.0, 1137.0),
    Contender.OWNED: (40.0, 1140.0),
    Contender.INSIDE: (40.0, 960.0),
}


def spread(median_us: float) -> Spread:
    return Spread(median_us, 1.0, 200)


def row(contender: Contender, model: str = "bert-128", **changed: Any) -> Row:
    host, wall = _TYPICAL[contender]
    values: dict[str, Any] = {
        "host": spread(host),
        "alone": spread(wall),
        "wall": spread(wall),
        "difference": Difference(0.001, 3.0),
        "agrees": True,
    }
    return Row(model, "fp16, 128 tokens", contender, **(values | changed))


def typical_rows(**of_owned: Any) -> tuple[Row, ...]:
    return tuple(row(each, **(of_owned if each is Contender.OWNED else {})) for each in _TYPICAL)


def generations(
    fast: float = 900.0, slow: float = 100.0, raw: float | None = 900.0
) -> tuple[GenerationRow, ...]:
    return (
        GenerationRow("smollm2-decode", "bf16", "generate", 128, spread(1e6), slow),
        GenerationRow(
            "smollm2-decode", "bf16", "accelerate", 128, spread(1e5), fast, same_tokens=(4, 5)
        ),
        GenerationRow(
            "smollm2-decode", "bf16", "hand-written graph", 128, spread(1e5), tokens_per_s=raw
        ),
    )


def traffic(**changed: Any) -> TrafficRow:
    values: dict[str, Any] = {
        "learnt_from": 100,
        "requests": 200,
        "buckets": (128, 1024, 4096),
        "prefill": Reuse(200, 198, 2000, 1980),
        "decode": Reuse(40000, 40000, 400000, 400000),
        "recordings": 4,
        "recording_s": 1.0,
        "exact_recordings": 250,
        "exact_recording_s": 25.0,
        "exact_requests": 300,
    }
    return TrafficRow("a decoder", "drawn", "nothing clipped", **(values | changed))


def result(**changed: Any) -> GraphsResult:
    values: dict[str, Any] = {
        "rows": typical_rows(),
        "generations": generations(),
        "traffic": traffic(),
    }
    return GraphsResult(HEAD, **(values | changed))
