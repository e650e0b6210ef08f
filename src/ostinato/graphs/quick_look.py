"""Where in torch's own memory does it keep how a tensor lies? Found out once per process, by trial.

The compiled check compares those bytes before every replay, a few nanoseconds a tensor. No header
promises where they are. So each is found by its content, with addresses and sizes that torch itself
names, and then all are tried against everything that can happen to a tensor's memory. Where
anything is not as expected, `_unchanged` asks DLPack about every tensor instead: slower, as sure.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

_WORD = 8
_MOST_WORDS = 32
_SHAPE = (3, 5, 2, 7, 4)
"""As many dimensions as torch keeps in a tensor itself, so that none of their words is idle."""


class Offsets(NamedTuple):
    """In bytes; see `struct look` in `_tensors.h`."""

    impl: int
    storage: int
    layout: int
    nbytes: int
    data: int


class Native(NamedTuple):
    """Functions of `_unchanged`, and torch's DLPack functions for tensor objects."""

    describe: Callable[..., object]
    look_at: Callable[..., None]
    surely_as_described: Callable[[object], int]
    exchange: object


NOWHERE = Offsets(0, 0, 0, 0, 0)

EXCHANGES: dict[str, Callable[[Tensor], object]] = {
    "other data": lambda t: setattr(t, "data", t.data.clone()),
    "turned data": lambda t: setattr(t, "data", t.data.t()),
    "data of another shape": lambda t: setattr(t, "data", t.data.view(2, 8)),
    "data of fewer dimensions": lambda t: setattr(t, "data", t.data.view(16)),
    "data of more dimensions": lambda t: setattr(t, "data", t.data.view(1, 4, 1, 2, 2, 1, 1)),
    "data of another dtype": lambda t: setattr(t, "data", t.data.view(torch.int32)),
    "data negated on reading": lambda t: setattr(t, "data", torch._neg_view(t.data)),
    "a view of the data": lambda t: setattr(t, "data", t.data[1:]),
    "an equally large view": lambda t: t.as_strided_((3, 4), (4, 1), 4).as_strided_((4, 3), (3, 1)),
    "turned in place": lambda t: t.t_(),
    "another storage": lambda t: t.set_(_four_by_four().untyped_storage(), 0, (4, 4), (4, 1)),
    "another size": lambda t: t.resize_(2, 2),
    "no dimension": lambda t: t.resize_(()),
    "a storage that grew": lambda t: t.untyped_storage().resize_(1 << 16),
    "a storage that was emptied": lambda t: t.untyped_storage().resize_(0),
    "another tensor in the object": lambda t: torch.utils.swap_tensors(t, _four_by_four()),
}
"""What can happen to a 4 x 4 float tensor without its object noticing."""


def _four_by_four() -> Tensor:
    return torch.zeros(4, 4, dtype=torch.float32, device="cpu")


def plain(tensors: Iterable[Tensor]) -> tuple[bool, ...]:
    """Return which tensors are of torch's own kind, with memory of their own."""
    return tuple(
        type(tensor) in (Tensor, Parameter) and tensor.layout is torch.strided for tensor in tensors
    )


def begin(native: Native) -> bool:
    """Have the compiled check look by itself if every trial agrees; return whether it will."""
    try:
        with torch.inference_mode(False), torch.no_grad():
            native.look_at(*_offsets())
            if all(_is_seen(change, native) for change in EXCHANGES.values()):
                return True
    except (AttributeError, LookupError, RuntimeError, TypeError):
        pass  # torch's memory is unlike what we know, or this is imported inside some mode
    native.look_at(*NOWHERE)
    return False


def _is_seen(change: Callable[[Tensor], object], native: Native) -> bool:
    tensors = (_four_by_four(),)
    described = native.describe(tensors, (True,), native.exchange)
    if not native.surely_as_described(described):
        return False
    change(tensors[0])
    return not native.surely_as_described(described)


def _offsets() -> Offsets:
    """Find everything, or raise LookupError."""
    base = torch.zeros(1000, dtype=torch.float32, device="cpu")
    tensor = base[13 : 13 + 840].view(_SHAPE)
    negated = torch._neg_view(tensor)
    storage = tensor.untyped_storage()
    # A length, sizes, strides, offset and count: in one piece, and like this nowhere else.
    known = [tensor.dim(), *tensor.shape, *tensor.stride(), tensor.storage_offset(), tensor.numel()]
    layout = _find(tensor._cdata, known)
    # What kind of tensor it is comes last; between stand dtype, device, flags and unused bytes,
    # which hold anything.
    kind = _find(tensor._cdata, [_kind(tensor)], begin=layout + _WORD * len(known))
    if _word(negated._cdata + kind) != _kind(negated):
        raise LookupError("the kind of a tensor")
    return Offsets(
        _find(id(tensor), [tensor._cdata], begin=object.__basicsize__),
        _find(tensor._cdata, [storage._cdata]),
        layout,
        kind + _WORD - layout,
        _find(storage._cdata, [storage.data_ptr()]),
    )


def _kind(tensor: Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _find(address: int, words: Sequence[int], begin: int = 0) -> int:
    """Return at which byte of an object `words` stand, looking no further than they do."""
    for at in range(begin, begin + _WORD * _MOST_WORDS, _WORD):
        if all(_word(address + at + _WORD * i) == word for i, word in enumerate(words)):
            return at
    raise LookupError(words)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
