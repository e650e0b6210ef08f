"""Which targets a run meets. Pure arithmetic; toy sizes and other machines bear nothing out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ostinato.bench.claims import Claim, Verdict
from ostinato.bench.serve.rows import ServeResult, ServeRow

_GPU: Final = "H200"
_MODEL: Final = "llama3.2-1b"
_TOKENS: Final = (128, 128)
_MOST_STREAMS: Final = 256
_LEAST_SHARE: Final = 0.8
_MOST_TIMES: Final = 1.05

Offline = Mapping[str, Mapping[str, float | None]]

# vLLM 0.26.0's server there, for the same work, measured 2026-11-29: with its defaults, and with
# four API servers and a frame for every 8 tokens.
_VLLM: Final = "12,035 tokens/s and 308 ms with defaults, 29,593 and 117 ms tuned"


def claims_of(result: ServeResult) -> tuple[Claim, ...]:
    """Return every claim about the rows, judged."""
    accelerator = result.head.get("machine", {}).get("accelerator") or {}
    options = result.head.get("options", {})
    if options.get("is_tiny") or _GPU not in str(accelerator.get("name", "")):
        return ()
    return tuple(
        claim
        for row in result.rows
        if (row.prompt, row.new) == _TOKENS and row.model == _MODEL
        for claim in _of_row(row, result.head.get("offline", {}))
    )


def _of_row(row: ServeRow, offline: Offline) -> Iterator[Claim]:
    one = row.summary
    if row.load == f"{_MOST_STREAMS} streams":
        rate = None if one is None else one.tok_s
        about = f"tokens/s; vLLM 0.26: {_VLLM}"
        yield _judge(row, about, "at least 60,000", rate, lambda n: n >= 60_000)
        ttft = None if one is None else one.ttft_ms.get("p50")
        yield _judge(row, "first token, ms p50", "at most 100", ttft, lambda n: n <= 100)
    if row.load == "1 stream":
        ttft = None if one is None else one.ttft_ms.get("p50")
        about = "first token, ms p50; vLLM 0.26: 15"
        yield _judge(row, about, "at most 5", ttft, lambda n: n <= 5)
    yield from _beside_the_engine(row, offline.get(row.load.partition(" ")[0], {}))
    gap = None if one is None else one.gap_ms.get("p99")
    yield _judge(row, "between frames, ms p99", "at most 50", gap, lambda n: n <= 50)


def _beside_the_engine(row: ServeRow, alone: Mapping[str, float | None]) -> Iterator[Claim]:
    """Judge against the engine's own decoding, which has no prompts to compute beside it."""
    one = row.summary
    rate, tpot = alone.get("tok_s"), alone.get("tpot_ms")
    if rate and row.load == f"{_MOST_STREAMS} streams":
        share = None if one is None else one.tok_s / rate
        about = f"of the engine's own {rate:,.0f} tokens/s"
        yield _judge(row, about, f"at least {_LEAST_SHARE}", share, lambda n: n >= _LEAST_SHARE)
    if tpot:
        times = None if one is None or "p50" not in one.tpot_ms else one.tpot_ms["p50"] / tpot
        about = f"time per token at p50, of the engine's own {tpot:.4g} ms"
        yield _judge(row, about, f"at most {_MOST_TIMES}", times, lambda n: n <= _MOST_TIMES)


def _judge(
    row: ServeRow, about: str, target: str, value: float | None, holds: Callable[[float], bool]
) -> Claim:
    name = f"{row.model}, {row.load}: {about}"
    if value is None:
        return Claim(name, target, row.error or "not measured", Verdict.NOT_MEASURED)
    verdict = Verdict.MET if holds(value) else Verdict.NOT_MET
    return Claim(name, target, f"{value:.5g}", verdict, value)
