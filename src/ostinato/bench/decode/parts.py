"""The parts of a step, kernel by kernel: what each took, what it moved, and what it lost. Pure.

A part's floor is what its bytes take at the best read bandwidth of the run, or its operations at
the best rate of the library's products there, whichever is more. What it took beyond that is lost:
waiting for memory's first answer, being handed over from kernel to kernel, processors without work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ostinato.llm.models import DecoderConfig

_ATTENTION = ("_decode",)
_PRODUCTS = ("_qkv", "_product_add", "_gate_up", "_head", "nvjet", "cutlass", "gemv", "gemm")
"""Our products by their names; the library's by what theirs have in common."""
_BETWEEN = {"_norm": "norms", "_weigh": "norms", "_gate": "gate", "_turn": "turn and cache"}
_BEHIND = ("splitKreduce",)
"""What the library runs behind a product that it cut into parts."""
_REST = "the rest"
_IN_A_LAYER = ("qkv", "out", "gate and up", "down")


class _Run(Protocol):
    """One run of a kernel, in microseconds."""

    @property
    def name(self) -> str: ...
    @property
    def began_us(self) -> float: ...
    @property
    def ended_us(self) -> float: ...


@dataclass(frozen=True, slots=True)
class StepSizes:
    """What a step of one model computes.

    Attributes:
        queries, keys: Widths of all heads together.
        weight_bytes: Of a weight in the layers' matrices; the head's take two.
        cached: Tokens whose keys and values a row has to read, in the mean.
    """

    layers: int
    hidden: int
    inner: int
    queries: int
    keys: int
    vocabulary: int
    weight_bytes: int
    cached: float

    @classmethod
    def of(cls, config: DecoderConfig, *, weight_bytes: int, cached: float) -> StepSizes:
        """Read them off a config."""
        return cls(
            layers=config.layers,
            hidden=config.hidden,
            inner=config.inner,
            queries=config.heads * config.head_dim,
            keys=config.kv_heads * config.head_dim,
            vocabulary=config.vocabulary,
            weight_bytes=weight_bytes,
            cached=cached,
        )

    def moved(self, part: str, rows: int, kernels: float) -> float:
        """Return the bytes that a part has to move for so many rows: read once, written once.

        Numbers between kernels take two bytes, the residual four. 0 for what has no such number.

        Args:
            kernels: How many a step runs; of small ones between products not every layer has one.
        """
        qkv = self.queries + 2 * self.keys
        between = {"norms": 6 * self.hidden, "gate": 6 * self.inner, "turn and cache": 4 * qkv}
        if part in between:
            return kernels * rows * between[part]
        weights, row = {
            "qkv": (self.hidden * qkv, 2 * (self.hidden + qkv)),
            "attention": (0, 4 * (self.cached * self.keys + self.queries)),
            "out": (self.queries * self.hidden, 2 * self.queries + 8 * self.hidden),
            "gate and up": (2 * self.inner * self.hidden, 2 * (self.hidden + self.inner)),
            "down": (self.inner * self.hidden, 2 * self.inner + 8 * self.hidden),
        }.get(part, (0, 0.0))
        if part == "head":
            return 2.0 * self.hidden * (self.vocabulary + rows)
        return self.layers * (weights * self.weight_bytes + rows * row)

    def operations(self, part: str, rows: int) -> float:
        """Return the sums and products of a step's part, two for each weight and row."""
        of_a_row = {
            "qkv": 2 * self.hidden * (self.queries + 2 * self.keys),
            "attention": 4 * self.cached * self.queries,
            "out": 2 * self.queries * self.hidden,
            "gate and up": 4 * self.inner * self.hidden,
            "down": 2 * self.inner * self.hidden,
        }.get(part, 0.0)
        if part == "head":
            return 2.0 * rows * self.hidden * self.vocabulary
        return self.layers * rows * of_a_row


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a device is at its best, measured in the same run; 0 where it was not.

    Attributes:
        read_tb_s: Reading memory, in 1e12 bytes per second.
        products_tflop_s: The library's products, in 1e12 sums and products per second.
    """

    read_tb_s: float = 0.0
    products_tflop_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a step.

    Attributes:
        per_step: How many kernels it is.
        us: By how much they moved the end of the step on: the parts' sum is the step.
        moved: Bytes that they have to move.
        floor_us: What those, or the operations, take at the least; None where neither is known.
    """

    name: str
    per_step: float
    us: float
    moved: float = 0.0
    floor_us: float | None = None


def parts_of(steps: Sequence[Sequence[_Run]], layers: int) -> tuple[Part, ...]:
    """Return what each part took in a step, the longest first; nothing if no step is whole.

    Args:
        steps: Kernels of each step, in the order in which they began.
        layers: Of the model; a step is whole if it has as many of everything.

    A kernel that begins before the one ahead has ended, to wait for it, is counted from that end,
    and so is what passes between two of a layer. Time between two launches is not counted.
    """
    count: Counter[str] = Counter()
    us: defaultdict[str, float] = defaultdict(float)
    whole = 0
    for step in steps:
        names = _names([each.name for each in step], layers)
        if names is None:
            continue
        whole += 1
        ended_us = step[0].began_us
        for name, each in zip(names, step, strict=True):
            count[name] += 1
            # Ahead of what is no part of a layer, the device may wait for the host's next launch.
            since_us = max(each.began_us, ended_us) if name == _REST else ended_us
            us[name] += max(each.ended_us - since_us, 0.0)
            ended_us = max(ended_us, each.ended_us)
    found = [Part(name, count[name] / whole, us[name] / whole) for name in count]
    return tuple(sorted(found, key=lambda each: -each.us))


def with_floors(
    parts: Sequence[Part], sizes: StepSizes, rows: int, rates: Rates
) -> tuple[Part, ...]:
    """Return the parts with the bytes that they move, and the least time that these take."""

    def of(part: Part) -> Part:
        moved = sizes.moved(part.name, rows, part.per_step)
        if not moved or not rates.read_tb_s:
            return part
        least_us = moved / rates.read_tb_s / 1e6
        if rates.products_tflop_s:
            operations = sizes.operations(part.name, rows)
            least_us = max(least_us, operations / rates.products_tflop_s / 1e6)
        return replace(part, moved=moved, floor_us=least_us)

    return tuple(of(part) for part in parts)


def _names(kernels: Sequence[str], layers: int) -> list[str] | None:
    """Name the part of every kernel; None if some are missing, for then no place is sure."""
    is_product = [_is_any(name, _PRODUCTS) for name in kernels]
    if sum(is_product) != 4 * layers + 1:
        return None
    if sum(_is_any(name, _ATTENTION) for name in kernels) != layers:
        return None
    order: Iterator[str] = iter([*_IN_A_LAYER * layers, "head"])
    named, last = [], _REST
    for kernel, product in zip(kernels, is_product, strict=True):
        if product:
            last = next(order)
            named.append(last)
        elif _is_any(kernel, _ATTENTION):
            named.append("attention")
        elif _is_any(kernel, _BEHIND):
            named.append(last)
        else:
            named.append(next((part for own, part in _BETWEEN.items() if own == kernel), _REST))
    return named


def _is_any(name: str, words: Sequence[str]) -> bool:
    return any(name.startswith(word) if word.startswith("_") else word in name for word in words)
