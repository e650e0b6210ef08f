"""Which targets a run meets. Pure arithmetic; toy sizes and other machines bear nothing out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ostinato.bench.claims import Claim, Verdict
from ostinato.bench.serve.beside import LEAST_SHARE, MOST_TIMES
from ostinato.bench.serve.rows import ServeResult, ServeRow

_GPU: Final = "H200"
_MODEL: Final = "llama3.2-1b"
_TOKENS: Final = (128, 128)
_MOST_STREAMS: Final = 256
_LEAST_KEPT: Final = 0.95

# vLLM 0.26.0's server there, for the same work, measured 2026-11-29: with its defaults, and with
# four API servers and a frame for every 8 tokens.
_VLLM: Final = "12,035 tokens/s and 308 ms with defaults, 29,593 and 117 ms tuned"


def claims_of(result: ServeResult) -> tuple[Claim, ...]:
    """Return every claim about the rows, judged."""
    accelerator = result.head.get("machine", {}).get("accelerator") or {}
    options = result.head.get("options", {})
    if options.get("is_tiny") or _GPU not in str(accelerator.get("name", "")):
        return ()
    return tuple(claim for row in result.rows if row.model == _MODEL for claim in _of_row(row))


def _of_row(row: ServeRow) -> Iterator[Claim]:
    if row.load.startswith("trace"):
        yield from _of_trace(row)
    elif (row.prompt, row.new) == _TOKENS:
        yield from _of_sizes(row)


def _of_trace(row: ServeRow) -> Iterator[Claim]:
    """Judge what came as it came: who was let in is served well, who was not is told so."""
    one = row.summary
    kept = None if one is None else one.kept_of_accepted
    about = "accepted requests that kept the objective"
    yield _judge(row, about, f"at least {_LEAST_KEPT}", kept, lambda n: n >= _LEAST_KEPT)
    unclean = None if one is None else one.shed_without_retry + sum(one.errors.values())
    about = "requests that failed, or were refused without a Retry-After"
    yield _judge(row, about, "none", unclean, lambda n: n == 0)


def _of_sizes(row: ServeRow) -> Iterator[Claim]:
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
    yield from _beside_the_engine(row)
    gap = None if one is None else one.gap_ms.get("p99")
    yield _judge(row, "between frames, ms p99", "at most 50", gap, lambda n: n <= 50)


def _beside_the_engine(row: ServeRow) -> Iterator[Claim]:
    beside = row.beside
    if beside is None:
        return
    alone = beside.alone
    if row.load == f"{_MOST_STREAMS} streams":
        about = f"of the engine's own {alone.tok_s:,.0f} tokens/s"
        target = f"at least {LEAST_SHARE}"
        yield _judge(row, about, target, beside.share, lambda n: n >= LEAST_SHARE)
    if alone.tpot_ms is not None:
        about = f"time per token at p50, of the engine's own {alone.tpot_ms:.4g} ms"
        target = f"at most {MOST_TIMES}"
        yield _judge(row, about, target, beside.times, lambda n: n <= MOST_TIMES)


def _judge(
    row: ServeRow, about: str, target: str, value: float | None, holds: Callable[[float], bool]
) -> Claim:
    name = f"{row.model}, {row.load}: {about}"
    if value is None:
        return Claim(name, target, row.error or "not measured", Verdict.NOT_MEASURED)
    verdict = Verdict.MET if holds(value) else Verdict.NOT_MET
    return Claim(name, target, f"{value:.5g}", verdict, value)
