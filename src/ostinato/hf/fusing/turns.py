"""Rotary embeddings of queries and keys, and the way of keys and values into the cache.

What every model of the Llama kind computes: `x * cos + cat((-high, low)) * sin`, for the queries
and then for the keys, by the same angles. Where the turned keys go nowhere but into the cache, and
the values follow them, the same kernel writes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from ostinato.hf.fusing.plan import Kind, Launch, Match, Slot
from ostinato.hf.fusing.stream import FLOATS, Stream, Value

_ADD, _MUL = "aten.add.Tensor", "aten.mul.Tensor"
_CAT, _NEG, _KEEP = "aten.cat.default", "aten.neg.default", "aten.index_copy_.default"


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turned tensor."""

    members: tuple[int, ...]
    x: Slot
    cos: Slot
    sin: Slot
    out: Slot


def turns(stream: Stream) -> Iterator[Match]:
    """Yield every pair of turned queries and keys in the stream."""
    found = [turn for index in range(len(stream.ops)) if (turn := _turn(stream, index))]
    partnered = False
    for first, second in pairwise(found):
        if not partnered and _are_partners(stream, first, second):
            partnered = True
            yield Match(Kind.ROTARY, (_launch(stream, first, second),))
        else:
            partnered = False


def _turn(stream: Stream, last: int) -> _Turn | None:
    ops = stream.ops
    if ops[last].name != _ADD or ops[last].kwargs:
        return None
    straight = stream.passing(ops[last].args[0], _MUL)
    across = stream.passing(ops[last].args[1], _MUL)
    if straight is None or across is None or ops[straight].kwargs or ops[across].kwargs:
        return None
    x, cos = ops[straight].args
    swapped, sin = ops[across].args
    joining = stream.passing(swapped, _CAT)
    if joining is None or not _is_angle(x, cos) or not _is_angle(x, sin):
        return None
    halves, *dim = ops[joining].args
    if len(halves) != 2 or dim not in ([-1], [len(x.shape) - 1]):
        return None
    turning = stream.passing(halves[0], _NEG)
    if turning is None or _half(x, 0) != halves[1] or (_half(x, 1),) != ops[turning].args:
        return None
    members = tuple(sorted((straight, turning, joining, across, last)))
    return _Turn(members, Slot(straight, 0), Slot(straight, 1), Slot(across, 1), Slot(last))


def _is_angle(x: object, angle: object) -> bool:
    """Whether `angle`, (B, 1, Q, D) or broadcast further, fits `x`, (B, H, Q, D)."""
    return (
        isinstance(x, Value)
        and isinstance(angle, Value)
        and x.dtype == angle.dtype
        and x.dtype in FLOATS
        and len(x.shape) == len(angle.shape) == 4
        and x.shape[3] == angle.shape[3]
        and x.shape[3] % 2 == 0
        and x.strides[3] == angle.strides[3] == 1
        and angle.shape[1] == 1
        and all(given in (1, size) for size, given in zip(x.shape, angle.shape, strict=True))
    )


def _half(x: Value, which: int) -> Value:
    size = x.shape[-1] // 2
    return replace(x, shape=(*x.shape[:-1], size), offset=x.offset + which * size)


def _are_partners(stream: Stream, first: _Turn, second: _Turn) -> bool:
    def value(slot: Slot) -> Value:
        found = stream.ops[slot.op].args[slot.arg or 0]
        assert isinstance(found, Value)
        return found

    queries, keys = value(first.x), value(second.x)
    return (
        (value(first.cos), value(first.sin)) == (value(second.cos), value(second.sin))
        and (queries.shape[0], *queries.shape[2:]) == (keys.shape[0], *keys.shape[2:])
        and first.out.op < second.members[0]
    )


def _launch(stream: Stream, queries: _Turn, keys: _Turn) -> Launch:
    takes = {"q": queries.x, "k": keys.x, "cos": queries.cos, "sin": queries.sin}
    members = (*queries.members, *keys.members)
    kept = _kept(stream, keys)
    if kept is None:
        fills = {"q_out": queries.out, "k_out": keys.out}
        return Launch("turn", tuple(sorted(members)), takes, fills)
    of_keys, of_values = kept
    takes |= {"v": Slot(of_values, 3), "column": Slot(of_keys, 2)}
    return Launch(
        "turn_and_keep",
        tuple(sorted((*members, of_keys, of_values))),
        takes,
        {"q_out": queries.out},
        updates={"keys": Slot(of_keys, 0), "values": Slot(of_values, 0)},
    )


def _kept(stream: Stream, keys: _Turn) -> tuple[int, int] | None:
    """Return the calls that write the turned keys, and the values after them, into a cache."""
    ops = stream.ops
    turned = ops[keys.out.op].outs[0]
    users = stream.users(turned)
    if len(users) != 1 or turned.region in stream.kept:
        return None
    of_keys = users[0]
    of_values = next((i for i in range(of_keys + 1, len(ops)) if not ops[i].is_view), of_keys)
    if ops[of_keys].name != _KEEP or ops[of_values].name != _KEEP or of_keys == of_values:
        return None
    cache, dim, column, given = ops[of_keys].args
    value_cache, value_dim, value_column, values = ops[of_values].args
    fits = (
        given == turned
        and dim == value_dim == 2
        and column == value_column
        and (column.shape, column.dtype) == ((1,), "int64")
        and turned.shape[2] == 1
        and values.shape == turned.shape
        and cache.shape == value_cache.shape
        and values.dtype == turned.dtype == cache.dtype == value_cache.dtype
        and cache.region != value_cache.region
        and cache.strides[3] == value_cache.strides[3] == values.strides[3] == 1
    )
    return (of_keys, of_values) if fits else None
