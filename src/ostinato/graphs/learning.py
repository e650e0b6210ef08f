"""Which sizes to record, given the sizes that were seen.

Every recorded size costs memory and a recording; every call on a larger size than its own costs
padded rows. For a number of recordings this module finds the sizes with the fewest padded rows over
a trace: exactly, not by a rule of thumb. `Buckets.learn` calls it.

Sorting the sizes makes it a partition problem: each bucket serves a run of neighbouring sizes and
is as large as the largest of them, so `best[g][j]`, the padded rows of the first j distinct sizes
on g buckets, is the minimum over i of `best[g-1][i] + cost(i, j)`. The cost splits into terms of i
and of j but for one product, so every i is a straight line in the size at j, and the lower hull of
those lines answers all j in one sweep: O(buckets x distinct sizes), in whole numbers throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import index

from ostinato.errors import UsageError, WrongTypeError


def best_sizes(trace: Iterable[int], max_graphs: int) -> tuple[int, ...]:
    """Return at most `max_graphs` sizes, ascending, that pad the calls of `trace` least.

    The largest size seen is always among them, so every call of the trace has a bucket. Sizes of 0
    are skipped: an empty batch runs eagerly.

    Raises:
        UsageError: OST1007, the trace holds no call or a negative size, or `max_graphs` is below 1.
    """
    _check_max_graphs(max_graphs)
    calls = _calls_per_size(trace)
    sizes = sorted(calls)
    if not sizes:
        raise UsageError(
            "there is nothing to learn from: the trace holds no size of 1 or more",
            code="OST1007",
            remedy="pass the sizes of calls that happened, such as [len(p) for p in prompts]",
        )
    return tuple(
        sizes[last] for last in _last_of_each_run(sizes, [calls[s] for s in sizes], max_graphs)
    )


def padded_share(sizes: Sequence[int], trace: Iterable[int]) -> float:
    """Return the share of all computed rows that is padding, 0.0 to below 1.0.

    Calls that no size holds run eagerly at their own size: they add rows, and no padding.

    Args:
        sizes: Ascending, as in `Buckets.sizes`.
        trace: Sizes of calls, in any order.
    """
    calls = sorted(_calls_per_size(trace).items())
    padding = computed = position = 0
    for size, count in calls:
        while position < len(sizes) and sizes[position] < size:
            position += 1
        served_by = sizes[position] if position < len(sizes) else size
        padding += count * (served_by - size)
        computed += count * served_by
    return padding / computed if computed else 0.0


def _last_of_each_run(sizes: list[int], calls: list[int], max_graphs: int) -> list[int]:
    """Split sizes[0:n] into runs; return the position of each run's last, largest size."""
    calls_before = [0, *accumulate(calls)]
    rows_before = [0, *accumulate(s * c for s, c in zip(sizes, calls, strict=True))]
    everything = len(sizes)
    # One bucket: every size is padded to the largest so far.
    best = [0] + [sizes[j - 1] * calls_before[j] - rows_before[j] for j in range(1, everything + 1)]
    run_starts: list[list[int]] = []
    # More buckets than distinct sizes cannot help; one more bucket always does until then.
    for buckets in range(2, min(max_graphs, everything) + 1):
        best, starts = _one_more_bucket(sizes, calls_before, rows_before, best, buckets)
        run_starts.append(starts)
    lasts = [everything - 1]
    end = everything
    for starts in reversed(run_starts):
        end = starts[end]
        lasts.append(end - 1)
    return lasts[::-1]


def _one_more_bucket(
    sizes: list[int], calls_before: list[int], rows_before: list[int], best: list[int], buckets: int
) -> tuple[list[int], list[int]]:
    """Return the padded rows of every prefix on `buckets` buckets, and its last run's start."""
    count = len(sizes)
    padded, starts = [0] * (count + 1), [0] * (count + 1)
    # A line per start i: best[i] + rows_before[i] - calls_before[i] * x. Slopes fall as i grows,
    # and x (a size) only grows, so the hull is a queue: lines leave at the front for good.
    hull: list[tuple[int, int, int]] = []  # (slope, height, start)
    front = 0
    for j in range(buckets, count + 1):
        start = j - 1
        line = (-calls_before[start], best[start] + rows_before[start], start)
        while len(hull) - front >= 2 and _middle_never_lowest(hull[-2], hull[-1], line):
            hull.pop()
        hull.append(line)
        x = sizes[j - 1]
        while front + 1 < len(hull) and _height(hull[front + 1], x) <= _height(hull[front], x):
            front += 1
        padded[j] = _height(hull[front], x) + x * calls_before[j] - rows_before[j]
        starts[j] = hull[front][2]
    return padded, starts


def _height(line: tuple[int, int, int], x: int) -> int:
    return line[0] * x + line[1]


def _middle_never_lowest(
    left: tuple[int, int, int], middle: tuple[int, int, int], right: tuple[int, int, int]
) -> bool:
    # The crossing of left and right lies at or before that of left and middle (cross-multiplied).
    return (right[1] - left[1]) * (left[0] - middle[0]) <= (middle[1] - left[1]) * (
        left[0] - right[0]
    )


def _check_max_graphs(max_graphs: object) -> None:
    if isinstance(max_graphs, bool) or not isinstance(max_graphs, int):
        raise WrongTypeError(
            f"max_graphs must be a whole number, got {max_graphs!r}",
            code="OST1007",
            remedy="pass how many recordings you can afford, such as 16",
        )
    if max_graphs < 1:
        raise UsageError(
            f"max_graphs must be at least 1, got {max_graphs}",
            code="OST1007",
            remedy="pass how many recordings you can afford, such as 16",
        )


def _calls_per_size(trace: Iterable[int]) -> Counter[int]:
    try:
        seen = Counter(trace)
    except TypeError:
        raise WrongTypeError(
            f"a trace is a series of sizes, got {type(trace).__name__}",
            code="OST1007",
            remedy="pass the sizes of calls, such as [12, 7, 130]",
        ) from None
    calls: Counter[int] = Counter()
    for size, count in seen.items():
        whole = _whole_size(size)
        if whole:
            calls[whole] += count
    return calls


def _whole_size(size: object) -> int:
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise WrongTypeError(
            f"the sizes of a trace must be whole numbers, got {size!r}",
            code="OST1007",
            remedy="pass the sizes of calls, such as [12, 7, 130]",
        )
    whole = index(size)
    if whole < 0:
        raise UsageError(
            f"the sizes of a trace cannot be negative, got {whole}",
            code="OST1007",
            remedy="pass the sizes of calls, such as [12, 7, 130]",
        )
    return whole
