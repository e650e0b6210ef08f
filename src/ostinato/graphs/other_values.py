"""Would the padding show beside other values than those of the call?

`x.amax(0)` padded with zeros is right until every value is negative. A row of a buffer that padding
writes with zeros is right while that row holds zeros. So a padded recording is also compared with
eager where the floating values of its inputs, and of the state that it writes, are all negative,
and where they are all positive; and where whole numbers and flags of that state are others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from ostinato.graphs.agreement import disagreement
from ostinato.graphs.state import TensorState
from ostinato.graphs.tree import flatten

_NONE_GIVEN: Mapping[int, Tensor] = MappingProxyType({})
_SIGNS = ((-1.0, "negative"), (1.0, "positive"))


@dataclass(frozen=True, slots=True)
class Written:
    """Tensors that a run writes in place: the callable's own state.

    Attributes:
        tensors: They hold what an eager run left in them.
        before: What they held before it.
    """

    tensors: Sequence[Tensor]
    before: TensorState

    @contextmanager
    def as_other(self, sign: float) -> Iterator[TensorState]:
        """Give the state other values for a while; yields what puts these values back."""
        after = TensorState(self.tensors)
        then = self.before.contents()
        try:
            with torch.no_grad():
                for tensor in self.tensors:
                    alias = tensor.detach()
                    alias.copy_(other_state(then[id(tensor)], alias.clone(), sign))
            yield TensorState(self.tensors)
        finally:
            after.restore()


_NO_STATE = Written((), TensorState(()))


def other_state(before: Tensor, after: Tensor, sign: float) -> Tensor:
    """Return other values that the state may hold, small ones, so that what is written shows.

    Whole numbers may be indices or counters. So only those that the run left alone are exchanged,
    and for a value that another of them held or got.
    """
    if before.layout is not torch.strided or before.numel() == 0:
        return before
    if before.is_floating_point():
        # 1 to 2, whatever it was: a small value beside a large one would not show.
        return ((before.abs() / (1 + before.abs())).nan_to_num(0.0) + 1) * sign
    if before.is_complex():
        return torch.full_like(before, sign)
    low, high = torch.minimum(before, after).min(), torch.maximum(before, after).max()
    other = torch.where(before == high, low, high)
    return torch.where(before == after, other, before)


def leak(
    leaves: Sequence[object],
    bucketed: Sequence[int],
    replay: Callable[[Sequence[object]], Sequence[object]],
    eager: Callable[[Sequence[object]], object],
    state: Written = _NO_STATE,
    given_then: Mapping[int, Tensor] = _NONE_GIVEN,
) -> str | None:
    """Say where a replay and an eager run differ on other values; None if they agree.

    Args:
        leaves: Of a padded call, on which they agree.
        bucketed: Indices of those that are padded; only their floating values are exchanged.
        replay: Gives the leaves of the result of a replay.
        eager: Gives the result of an eager run; that it raises says nothing about the padding.
        state: What the runs write of their own, which is left as it is found.
        given_then: What the leaves held, by index, that the runs write. The runs write to copies;
            `eager` and `replay` give them behind the leaves of the result.
    """
    floating = [index for index in bucketed if _is_floating(leaves[index])]
    for sign, name in _SIGNS if floating or state.tensors or given_then else ():
        others = list(leaves)
        for index in {*floating, *given_then}:
            leaf = leaves[index]
            assert isinstance(leaf, Tensor)
            if index in floating:
                others[index] = (leaf.detach().abs() + 1) * sign
            else:
                others[index] = other_state(given_then[index], leaf.detach(), sign)
        with state.as_other(sign) as start:
            found = _differs(others, replay, eager, state.tensors, start)
        if found:
            return f"when all values are {name}, {found}"
    return None


def _differs(
    others: Sequence[object],
    replay: Callable[[Sequence[object]], Sequence[object]],
    eager: Callable[[Sequence[object]], object],
    state: Sequence[Tensor],
    start: TensorState,
) -> str | None:
    try:
        expected, structure = flatten(eager(others))
    except Exception:  # noqa: BLE001 - the user's, on values that no call has had
        return None
    # Results may be views of the state, which the replay starts from again.
    expected = [t.detach().clone() if isinstance(t, Tensor) else t for t in expected]
    wanted = [tensor.detach().clone() for tensor in state]
    start.restore()
    found = disagreement(replay(others), expected, structure.paths)
    names = [f"state {i} that it writes" for i in range(len(state))]
    return found or disagreement([t.detach() for t in state], wanted, names)


def _is_floating(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
