"""Would the padding show beside other values than those of the call?

`x.amax(0)` padded with zeros is right until every value is negative. So a padded recording is also
compared with eager where all its floating values are negative, and where all are positive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ostinato.graphs.agreement import disagreement
from ostinato.graphs.tree import flatten


def leak(
    leaves: Sequence[object],
    bucketed: Sequence[int],
    replay: Callable[[Sequence[object]], Sequence[object]],
    eager: Callable[[Sequence[object]], object],
) -> str | None:
    """Say where a replay and an eager run differ on other values; None if they agree.

    Args:
        leaves: Of a padded call, on which they agree. They are not written to.
        bucketed: Indices of those that are padded; only their floating values are exchanged.
        replay: Gives the leaves of the result of a replay.
        eager: Gives the result of an eager run; that it raises says nothing about the padding.
    """
    floating = [index for index in bucketed if _is_floating(leaves[index])]
    for sign, name in ((-1.0, "negative"), (1.0, "positive")) if floating else ():
        others = list(leaves)
        for index in floating:
            leaf = leaves[index]
            assert isinstance(leaf, Tensor)
            others[index] = (leaf.detach().abs() + 1) * sign
        try:
            expected, structure = flatten(eager(others))
        except Exception:  # noqa: BLE001 - the user's, on values that no call has had
            continue
        found = disagreement(replay(others), expected, structure.paths)
        if found:
            return f"when all values are {name}, {found}"
    return None


def _is_floating(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
