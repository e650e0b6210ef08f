"""How the signatures of one callable differ: in their shapes, or in plain values beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ostinato.doctor.activity import Callable_
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.graph_use import GraphUse

LEAST_CALLS = 40
LEAST_SIGNATURES = 12
CHURN = 0.3
REUSED = 0.6

_SHAPE = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Churn:
    """A callable that is recorded or compiled, and whose signatures hardly come again.

    Attributes:
        shapes: Distinct sets of shapes among the signatures.
        argument: Which argument varies most, from 0, where it is not the shapes.
    """

    callable: Callable_
    use: GraphUse | None
    signatures: int
    shapes: int
    argument: int | None

    @property
    def is_by_shape(self) -> bool:
        """Whether the shapes vary, and not just plain values beside them."""
        return self.shapes >= 0.5 * self.signatures


def churn(evidence: Evidence) -> Churn | None:
    """Return the callable whose signatures vary most, among those for which it matters."""
    uses = {use.name: use for use in evidence.graphs if use.kind == "graphed"}
    found = []
    for each in evidence.callables:
        use = uses.get(each.name)
        if use is not None and use.replays >= REUSED * use.calls:
            continue  # padded to sizes that come again
        if use is None and not each.captured and not each.compiled:
            continue
        count = len(each.signatures)
        enough = each.calls >= LEAST_CALLS and count >= LEAST_SIGNATURES
        if enough and count >= CHURN * looked_at(each):
            found.append(_describe(each, use))
    return max(found, key=lambda each: each.signatures, default=None)


def times_of_making(use: GraphUse) -> list[float]:
    """Return how long each of the recordings that are alive took to make, in us."""
    return [each.build_us for each in use.recordings if each.build_us]


def looked_at(each: Callable_) -> int:
    """Return of how many calls the signature was noted and kept: in a long watch, not of all."""
    return sum(use.calls for use in each.signatures)


def _describe(each: Callable_, use: GraphUse | None) -> Churn:
    texts = [signature.text for signature in each.signatures]
    shapes = {tuple(_SHAPE.findall(text)) for text in texts}
    columns = list(zip(*(text.split("; ") for text in texts), strict=False))
    varied = [len(set(column)) for column in columns]
    argument = max(range(len(varied)), key=varied.__getitem__) if varied else None
    return Churn(each, use, len(texts), len(shapes), argument)


def varying_dimension(each: Callable_) -> int | None:
    """Return the dimension of the first tensor that takes the most sizes; None if none varies."""
    ranks = {len(use.sizes) for use in each.signatures}
    if len(ranks) != 1:
        return None
    counts = [len({use.sizes[d] for use in each.signatures}) for d in range(ranks.pop())]
    if not counts or max(counts) < 2:
        return None
    return counts.index(max(counts))


def best_sizes(calls: dict[int, int], most: int) -> tuple[int, ...]:
    """Return at most `most` sizes, ascending, on which padding up costs the fewest rows."""
    sizes = sorted(calls)
    if len(sizes) > 256:  # every so many: the exact answer is not worth a second of waiting
        kept = sizes[:: len(sizes) // 256 + 1]
        sizes = sorted({*kept, sizes[-1]})
    weights = [0] * len(sizes)
    for size, count in calls.items():
        weights[next(i for i, s in enumerate(sizes) if s >= size)] += count
    # best[j]: the cost and the buckets that serve the first j sizes.
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    best += [(float("inf"), ())] * len(sizes)
    for _ in range(most):
        nxt = list(best)
        for j in range(1, len(sizes) + 1):
            rows = 0.0
            for i in range(j - 1, -1, -1):
                rows += weights[i] * sizes[j - 1]
                if best[i][0] + rows < nxt[j][0]:
                    nxt[j] = (best[i][0] + rows, (*best[i][1], sizes[j - 1]))
        best = nxt
    return best[-1][1]
