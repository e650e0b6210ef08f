"""Does a row's answer change with the rows that it runs with?

Two different rows of a batch are repeated in place of all others, each in a run of its own. What a
row gets there in its old place is its answer among others, unless it depends on them: on earlier
rows, on later ones, or on all. Two rows, because one may be what the others are compared with: the
largest row gets the same from `x - x.amax(0)` in any company. And every place must give that
answer, so a row that counts its place is seen too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ostinato.graphs.agreement import disagreement
from ostinato.graphs.seeds import default_generators, set_state, state_of

Tensors = Mapping[str, Tensor]


def two_rows(inputs: Tensors) -> tuple[int, int] | None:
    """Return the places of two neighbours that differ; None if all rows are the same."""
    others = torch.nonzero(~_equal_rows(inputs, 0))
    if not len(others):
        return None
    second = int(others[0])
    return second - 1, second


def dependence(call: Callable[[Tensors], Tensors], inputs: Tensors, places: Sequence[int]) -> str:
    """Say where a row's answer depends on other rows; empty if no row does, or nobody can tell.

    Draws of the default generators are the same in every run, so that they are not taken for it.
    A callable that answers the same rows differently, for whatever reason, tells nothing.

    Args:
        call: Gets tensors of its own, which it may write to, and returns as many rows.
        inputs: (rows, ...) each.
        places: Of the rows to repeat.

    Raises:
        ValueError: An output has another number of rows.
    """
    rows = len(next(iter(inputs.values())))
    in_order = list(range(rows))
    device = next(iter(inputs.values())).device
    states = [(each, state_of(each)) for each in default_generators(device)]

    def run(order: Sequence[int]) -> Tensors:
        for generator, state in states:
            set_state(generator, state)
        made = call({name: each[list(order)] for name, each in inputs.items()})
        for name, tensor in made.items():
            if tensor.dim() == 0 or len(tensor) != rows:
                raise ValueError(f"{name!r} has the shape {list(tensor.shape)} for {rows} rows")
        # Copies, for a callable that answers in a buffer of its own.
        return {name: tensor.detach().clone() for name, tensor in made.items()}

    expected = run(in_order)
    draws = any(not torch.equal(state_of(each), state) for each, state in states)
    for place in places:
        equal = [int(each) for each in torch.nonzero(_equal_rows(inputs, place))]
        found = _first(_differences(run([place] * rows), expected, place, equal, draws))
        if found:
            again = run(in_order)
            is_steady = not _first(_differences(again, expected, None, in_order, True))
            return found if is_steady else ""
    return ""


def _differences(
    made: Tensors, expected: Tensors, place: int | None, equal: Sequence[int], draws: bool
) -> Iterator[str]:
    """Yield how the outputs differ from those expected.

    Args:
        place: Of the row that all are; None: each is what it was.
        equal: Places at which a row is what it was.
        draws: Whether equal rows get equal answers in equal places only.
    """
    for name, theirs in expected.items():
        mine = made[name]
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            yield f"{name}: shape {list(mine.shape)} instead of {list(theirs.shape)}"
            continue
        at, of = list(equal), list(equal)
        # Another place may mean another rounding, which a whole number has no room for.
        if place is not None and not draws and mine.is_floating_point():
            at, of = list(range(len(mine))), [place] * len(mine)
        # With all answers behind both, since a difference is measured by the largest of them.
        pair = [torch.cat([mine[at], theirs])], [torch.cat([theirs[of], theirs])]
        found = disagreement(*pair, [name])
        if found:
            yield found


def _first(found: Iterator[str]) -> str:
    return next(found, "")


def _equal_rows(inputs: Tensors, place: int) -> Tensor:
    """Return which rows are, byte for byte, the one at `place`: (rows,) bool."""
    equal = []
    for each in inputs.values():
        row_bytes = each.contiguous().view(len(each), -1) if each.numel() else each.flatten(1)
        row_bytes = row_bytes.view(torch.uint8)
        equal.append((row_bytes == row_bytes[place]).all(1))
    return torch.stack(equal).all(0)
