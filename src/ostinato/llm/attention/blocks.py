"""Attention whose result for a token does not depend on the company it is computed in.

A matrix product may add its terms in another order when its shape changes, so the same token can
get other last bits in a larger batch, in another chunk, or beside a longer row. Here every product
has one shape: 16 query rows by one block of keys. Blocks stand at fixed positions of the sequence
and are added from the first to the last, and a block that is masked out adds an exact zero. So
whatever else is computed with it, a token's bits are the same.

Used on a CPU in float32, where this is the default; it is also an oracle for other backends.

Shapes: X sequences, G key and value heads, M query rows of a head, S keys, D head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 16
KEYS = 256
# Not minus infinity: the difference of two of those is no number.
_LOWEST = -1e30


def attend_in_blocks(
    q_XGMD: Tensor, k_XGSD: Tensor, v_XGSD: Tensor, visible_XMS: Tensor, scale: float
) -> Tensor:
    """Return softmax(scale * q k) v over the visible keys; zero where a row sees none.

    Args:
        visible_XMS: bool; M or X may be 1 and then holds for all.

    Capture:
        Safe.
    """
    rows, keys = q_XGMD.shape[2], k_XGSD.shape[2]
    more_rows, more_keys = -rows % ROWS, -keys % KEYS
    if visible_XMS.shape[1] != 1:
        visible_XMS = functional.pad(visible_XMS, (0, 0, 0, more_rows))
    visible = _in_tiles(functional.pad(visible_XMS, (0, more_keys))[:, None])
    q = _in_tiles(functional.pad(q_XGMD * scale, (0, 0, 0, more_rows)))
    k = functional.pad(k_XGSD, (0, 0, 0, more_keys))
    v = functional.pad(v_XGSD, (0, 0, 0, more_keys))

    top = q.new_full((*q.shape[:-1], 1), _LOWEST)
    total = torch.zeros_like(top)
    out = torch.zeros_like(q)
    for start in range(0, keys + more_keys, KEYS):
        block = slice(start, start + KEYS)
        scores = _product(q, k[:, :, block].transpose(-1, -2))
        scores = scores.masked_fill(~visible[..., block], float("-inf"))
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink = torch.exp(top - new_top)
        weights = torch.exp(scores - new_top)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + _product(weights, v[:, :, block])
        top = new_top
    # A row that sees a key has a total of at least 1, so this changes only rows that see none.
    result: Tensor = (out / total.clamp_min(1e-30)).flatten(2, 3)[:, :, :rows]
    return result


def _in_tiles(tensor: Tensor) -> Tensor:
    """(X, G, M, ...) to (X, G, tiles, 16, ...), or one tile of one row if M is 1."""
    rows = tensor.shape[2]
    tiles: Tensor = tensor.unflatten(2, (-1, min(rows, ROWS)))
    return tiles


def _product(tiles: Tensor, block_XGAB: Tensor) -> Tensor:
    """Multiply every tile by its head's block: products of one and the same shape."""
    X, G, count = tiles.shape[:3]
    wide = block_XGAB[:, :, None].expand(X, G, count, *block_XGAB.shape[2:])
    product: Tensor = torch.bmm(tiles.flatten(0, 2), wide.flatten(0, 2))
    shaped: Tensor = product.unflatten(0, (X, G, count))
    return shaped
