"""How fast attention reads keys and values in a batch of long rows. Pure arithmetic.

Two answers, for neither is above doubt. By difference: what the same batch takes longer with long
rows than with short ones is the reading of the keys and values that it has more. By kernel: the
profiler's time of attention, for each of its runs; one that begins early is counted with its
waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ostinato.bench.claims import Claim, Verdict

LEAST = 0.8
"""Of the measured bandwidth."""


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One model with a batch of rows of one length.

    Attributes:
        context: Tokens of each prompt.
        steps: Steps that counted: all rows ran in them.
        ms: Per step, their time by their number.
        launch_ms, launch_iqr_ms: Per step, from launch to launch: the median and how far they lie
            apart.
        rows_per_step: Rows that ran in a step, by the engine's own count, over nearly these steps.
        kv_bytes: Keys and values that a step reads, on average over the steps.
        weight_bytes: Weights that it reads.
        before, behind: Steps that did not count.
        preemptions: Rows that were thrown out meanwhile; more than none spoils the row.
        prompts_s: Until every row ran.
        attention_us: A run of attention, by the profiler; one layer of one step.
        attention_runs: Of them, those that it saw.
        layers: Of the model.
        error: Why there is nothing.
    """

    model: str
    batch: int
    context: int
    steps: int = 0
    ms: float | None = None
    launch_ms: float | None = None
    launch_iqr_ms: float | None = None
    rows_per_step: float | None = None
    kv_bytes: float = 0.0
    weight_bytes: int = 0
    before: int = 0
    behind: int = 0
    preemptions: int = 0
    prompts_s: float | None = None
    attention_us: float | None = None
    attention_runs: float = 0.0
    layers: int = 0
    error: str = ""

    @property
    def kernel_tb_s(self) -> float | None:
        """Keys and values by the time that attention's kernels take, 1e12 bytes per second."""
        if not self.attention_us:
            return None
        return self.kv_bytes / (self.attention_us * self.layers) / 1e6

    def floor_ms(self, read_tb_s: float) -> float | None:
        """What reading weights, keys and values takes at a bandwidth."""
        return (self.weight_bytes + self.kv_bytes) / read_tb_s / 1e9 if read_tb_s else None


@dataclass(frozen=True, slots=True)
class ContextResult:
    """A whole run: short rows, then long ones.

    Attributes:
        head: When, where, with which versions and options.
        read_tb_s: The best read bandwidth of this run; 0 on a CPU.
    """

    head: Mapping[str, Any]
    read_tb_s: float
    short: ContextRow | None = None
    long: ContextRow | None = None

    @property
    def difference_tb_s(self) -> float | None:
        """Keys and values that long rows have more, by the time that they take more."""
        if self.short is None or self.long is None:
            return None
        if self.short.ms is None or self.long.ms is None or self.long.ms <= self.short.ms:
            return None
        return (self.long.kv_bytes - self.short.kv_bytes) / (self.long.ms - self.short.ms) / 1e9

    @property
    def share(self) -> float | None:
        """Of the measured bandwidth, what attention reaches: the less of the two answers."""
        kernel = None if self.long is None else self.long.kernel_tb_s
        known = [each for each in (self.difference_tb_s, kernel) if each is not None]
        return min(known) / self.read_tb_s if known and self.read_tb_s else None

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {
            **self.head,
            "read_tb_s": self.read_tb_s,
            "rows": [self._told(row) for row in (self.short, self.long) if row is not None],
            "difference_tb_s": self.difference_tb_s,
            "share": self.share,
            "claims": [asdict(claim) for claim in claims_of(self)],
        }

    def _told(self, row: ContextRow) -> dict[str, Any]:
        values = asdict(row) | {
            "kernel_tb_s": row.kernel_tb_s,
            "floor_ms": row.floor_ms(self.read_tb_s),
        }
        return {key: value for key, value in values.items() if value not in (None, "")}


def claims_of(result: ContextResult) -> tuple[Claim, ...]:
    """Return the claim about long rows, judged; toy sizes and a CPU bear nothing out."""
    if result.head.get("options", {}).get("is_tiny") or result.long is None:
        return ()
    row = result.long
    about = (
        f"{row.model}, batch {row.batch}, {row.context} tokens of context: bandwidth at which "
        "attention reads keys and values"
    )
    target = f"at least {LEAST:.0%} of the measured"
    if result.share is None or row.preemptions:
        why = row.error or (f"{row.preemptions} rows were thrown out" if row.preemptions else "")
        return (Claim(about, target, why or "not measured", Verdict.NOT_MEASURED),)
    verdict = Verdict.MET if result.share >= LEAST else Verdict.NOT_MET
    return (Claim(about, target, f"{result.share:.1%}", verdict, result.share),)


def as_text(result: ContextResult) -> str:
    """Return the whole result for people."""
    lines = [f"reads at {result.read_tb_s:.2f} TB/s"]
    for row in (result.short, result.long):
        if row is None:
            continue
        lines.append(f"{row.model}, {row.batch} rows of {row.context} tokens")
        if row.ms is None:
            lines.append(f"  {row.error}")
            continue
        lines.append(
            f"  {row.ms:.3f} ms a token over {row.steps} steps of all rows ("
            f"{row.rows_per_step or 0:.2f} by the engine's count); launch to launch "
            f"{row.launch_ms or 0:.3f}, apart {row.launch_iqr_ms or 0:.3f}"
        )
        lines.append(
            f"  a step reads {row.kv_bytes / 1e9:.3f} GB of keys and values and "
            f"{row.weight_bytes / 1e9:.3f} of weights; floor "
            f"{_number(row.floor_ms(result.read_tb_s))} ms"
        )
        lines.append(
            f"  not counted: {row.before} steps while prompts came in "
            f"({row.prompts_s or 0:.1f} s), {row.behind} behind; thrown out: {row.preemptions}"
        )
        if row.kernel_tb_s is not None:
            lines.append(
                f"  attention by its kernels: {row.attention_us:.1f} us a layer, "
                f"{row.kernel_tb_s:.3f} TB/s"
            )
        lines += [f"  {row.error}"] if row.error else []
    if result.difference_tb_s is not None:
        lines.append(f"attention by difference: {result.difference_tb_s:.3f} TB/s")
    return "\n".join([*lines, *(str(claim) for claim in claims_of(result))])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
