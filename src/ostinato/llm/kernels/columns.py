"""A piece of columns, taken apart: what a thread has in a row becomes tensors of one each.

Nothing moves between threads where each has as many columns in a row as are taken apart.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def eight(piece: tl.tensor) -> Any:
    """Return every eighth column, from the first on, from the second, and so on."""
    from_0, from_1, from_2, from_3 = four(piece)
    from_0, from_4 = two(from_0)
    from_1, from_5 = two(from_1)
    from_2, from_6 = two(from_2)
    from_3, from_7 = two(from_3)
    return from_0, from_1, from_2, from_3, from_4, from_5, from_6, from_7


@triton.jit
def four(piece: tl.tensor) -> Any:
    """Return every fourth column, likewise."""
    even, odd = two(piece)
    from_0, from_2 = two(even)
    from_1, from_3 = two(odd)
    return from_0, from_1, from_2, from_3


@triton.jit
def two(piece: tl.tensor) -> Any:
    """Return the even columns and the odd ones."""
    return tl.split(tl.reshape(piece, (piece.shape[0], piece.shape[1] // 2, 2)))
