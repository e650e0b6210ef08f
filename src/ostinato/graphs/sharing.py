"""Which opened values of a call are one and the same object: `a is b` can be asked of two lists.

Opened values are numbered in the order in which they are met, outermost first. Pure: no torch.
`tree.py` numbers them so when it takes a value apart, and again when it puts one together.
"""

from __future__ import annotations

from collections.abc import Sequence

Shared = tuple[tuple[int, int], ...]
"""Pairs of numbers: a value, and the earlier one that is the same object."""


def repeats(values: Sequence[object]) -> Shared:
    """Return which of `values` are an earlier one again; they must all be alive."""
    if len(set(map(id, values))) == len(values):
        return ()
    first: dict[int, int] = {}
    earlier = [first.setdefault(id(value), number) for number, value in enumerate(values)]
    return tuple((number, at) for number, at in enumerate(earlier) if at != number)
