"""Which targets a run meets, and what got slower since another. Pure arithmetic on rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from ostinato.bench.claims import Claim, Verdict
from ostinato.bench.decode.rows import OURS, DecodeResult, DecodeRow

HOST_RATIO = 1.05

# vLLM 0.26.0 on an H200 for the same work, measured 2026-11-29: ms per step by batch, and ms to the
# first token by batch.
VLLM_TPOT: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "llama3-8b": {1: 5.00, 8: 4.97, 32: 5.41, 128: 7.10, 256: 10.58},
        "llama3.2-1b": {1: 2.19, 8: 2.74, 32: 3.21, 128: 4.46, 256: 5.49},
        "smollm2-135m": {1: 1.75, 8: 1.78, 32: 2.96, 128: 4.95, 256: 7.69},
    }
)
VLLM_TTFT: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "llama3-8b": {1: 11.3, 256: 774},
        "llama3.2-1b": {1: 7.6, 256: 150},
        "smollm2-135m": {1: 7.8, 256: 121},
    }
)
# What the engine is to reach on an H200 (bfloat16 unless the engine's name says otherwise).
TARGET_TPOT: Mapping[tuple[str, str], Mapping[int, float]] = MappingProxyType(
    {
        (OURS, "llama3-8b"): {1: 3.85, 32: 4.5, 256: 7.5},
        (OURS, "llama3.2-1b"): {1: 0.72, 32: 1.05, 256: 1.7},
        (OURS, "smollm2-135m"): {1: 0.32, 32: 0.45, 256: 0.85},
        (f"{OURS}, int8", "llama3-8b"): {1: 2.4},
        (f"{OURS}, fp8", "llama3-8b"): {1: 2.4},
    }
)
TARGET_TTFT: Mapping[tuple[str, str], Mapping[int, float]] = MappingProxyType(
    {
        (OURS, "llama3-8b"): {1: 8, 256: 650},
        (OURS, "llama3.2-1b"): {1: 3, 256: 110},
        (OURS, "smollm2-135m"): {1: 2.5, 256: 60},
    }
)
_NOISE = 0.03  # of a time: what two runs on one machine may differ by


def claims_of(result: DecodeResult) -> tuple[Claim, ...]:
    """Return every claim about the rows, judged; toy sizes bear nothing out."""
    if result.is_tiny:
        return ()
    return tuple(claim for row in result.rows for claim in _of_row(row))


def _of_row(row: DecodeRow) -> Iterator[Claim]:
    name = f"{row.model}, batch {row.batch}"
    if not row.engine.startswith(OURS):
        return
    if row.engine != OURS:
        name += row.engine.removeprefix(OURS)
    key = (row.engine, row.model)
    yield from _at_most("per token", name, row, row.tpot_ms, TARGET_TPOT.get(key, {}))
    yield from _at_most("to the first token", name, row, row.ttft_ms, TARGET_TTFT.get(key, {}))
    if row.engine != OURS:
        return
    yield _judge(
        f"{name}: wall time per token to the launches' time on the device",
        f"at most {HOST_RATIO}",
        row.host_ratio,
        lambda value: value <= HOST_RATIO,
        row,
    )
    yield from _against("per token", name, row, row.tpot_ms, VLLM_TPOT)
    yield from _against("to the first token", name, row, row.ttft_ms, VLLM_TTFT)


def _against(
    what: str,
    name: str,
    row: DecodeRow,
    value: float | None,
    recorded: Mapping[str, Mapping[int, float]],
) -> Iterator[Claim]:
    other = recorded.get(row.model, {}).get(row.batch)
    if other is not None:
        about = f"{name}: ms {what}, below vLLM 0.26's recorded on an H200"
        yield _judge(about, f"below {other:g}", value, lambda ms: ms < other, row)


def _at_most(
    what: str, name: str, row: DecodeRow, value: float | None, targets: Mapping[int, float]
) -> Iterator[Claim]:
    most = targets.get(row.batch)
    if most is not None:
        about = f"{name}: ms {what}"
        yield _judge(about, f"at most {most:g}", value, lambda ms: ms <= most, row)


def _judge(
    about: str,
    target: str,
    value: float | None,
    holds: Callable[[float], bool],
    row: DecodeRow,
) -> Claim:
    if value is None:
        return Claim(about, target, row.error or "not measured", Verdict.NOT_MEASURED)
    verdict = Verdict.MET if holds(value) else Verdict.NOT_MET
    return Claim(about, target, f"{value:.4g}", verdict, value)


def regressions(now: DecodeResult, before: DecodeResult) -> list[str]:
    """Say what got slower than noise explains, and what no longer runs, a line each."""
    found = []
    for row in now.rows:
        old = before.row(row.engine, row.model, row.batch)
        if row.engine.startswith(OURS) and old is not None:
            found += [f"{row.model}, batch {row.batch}: {said}" for said in _worse(row, old)]
    return found


def _worse(row: DecodeRow, old: DecodeRow) -> Iterator[str]:
    if row.error and not old.error:
        yield f"was measured, now {row.error}"
    for name in ("tpot", "ttft"):
        (new_ms, old_ms), apart = (
            [getattr(each, f"{name}_{part}") for each in (row, old)] for part in ("ms", "iqr_ms")
        )
        if new_ms is None or old_ms is None:
            continue
        if new_ms > old_ms * (1 + _NOISE) + 2 * max(each or 0 for each in apart):
            yield f"{name}_ms {new_ms:.4g}, was {old_ms:.4g}"
