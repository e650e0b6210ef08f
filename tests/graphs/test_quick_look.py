"""The quick look at a tensor says "as it was" only where the slow ones say so too."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import quick_look
from ostinato.graphs import watch as watch_module
from ostinato.graphs.quick_look import EXCHANGES, Native, begin
from ostinato.graphs.watch import Addresses

_unchanged = pytest.importorskip("ostinato.graphs._unchanged")
EXCHANGE = getattr(Tensor, "__dlpack_c_exchange_api__", None)
NATIVE = Native(_unchanged.describe, _unchanged.look_at, _unchanged.surely_as_described, EXCHANGE)
pytestmark = pytest.mark.skipif(EXCHANGE is None, reason="this torch has no DLPack for C")


@pytest.fixture
def slow() -> Iterator[None]:
    """Nothing is described for a quick look."""
    _unchanged.look_at(*quick_look.NOWHERE)
    yield
    assert begin(NATIVE)


def quickly(watched: Addresses) -> int:
    return int(_unchanged.surely_as_described(watched.natively))


def model() -> list[Tensor]:
    parts = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(2, 2, 2), nn.BatchNorm2d(2)).eval()
    parts.requires_grad_(False)
    views = [torch.zeros(8, 4)[2:6, 1:], torch.zeros(3, 4).t(), torch.zeros(4)[:0]]
    return [*parts.state_dict(keep_vars=True).values(), *views, torch.zeros((2,) * 7)]


def test_all_but_empty_tensors_and_those_of_many_dimensions_are_looked_at_quickly() -> None:
    tensors = model()
    watched = Addresses(tensors)
    assert quickly(watched) == len(tensors) - 2
    assert watched.hold()


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_whatever_happens_to_a_tensor_is_seen_and_told_as_python_tells_it(exchange: str) -> None:
    tensors = [torch.ones(2), torch.zeros(4, 4), torch.ones(3)]
    watched = Addresses(tensors)
    before = [watch_module._description(tensor) for tensor in tensors]
    assert quickly(watched) == len(tensors)
    EXCHANGES[exchange](tensors[1])
    assert quickly(watched) == len(tensors) - 1
    # A storage that grows may stay where it is: then the look was too careful, and no more.
    now = [watch_module._description(tensor) for tensor in tensors]
    assert watched.hold() is (now == before)


def test_what_stands_in_unused_bytes_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process in thirty took them for the kind of a tensor, and asked DLPack ever after."""
    known = quick_look._offsets()
    real, read = quick_look._word, itertools.count()
    tensor = torch.zeros(4)
    flags = real(tensor._cdata + known.layout + known.nbytes - 16) & 0xFFFFFFFFFFFF

    def word(address: int) -> int:
        value = real(address)
        return value ^ next(read) << 56 if value & 0xFFFFFFFFFFFF == flags else value

    monkeypatch.setattr(quick_look, "_word", word)
    assert quick_look._offsets() == known
    assert next(read) > 0, "no such bytes were read"


@pytest.mark.parametrize("exchange", [e for e in EXCHANGES if e != "data negated on reading"])
def test_dlpack_alone_tells_the_same(exchange: str, slow: None) -> None:
    tensor = torch.zeros(4, 4)
    watched = Addresses([tensor])
    before = watch_module._description(tensor)
    assert quickly(watched) == 0
    assert watched.hold()
    EXCHANGES[exchange](tensor)
    assert watched.hold() is (watch_module._description(tensor) == before)


def test_a_tensor_of_many_dimensions_is_watched_too() -> None:
    tensor = torch.zeros((2,) * 7)
    watched = Addresses([tensor])
    tensor.data = tensor.data.transpose(0, 6)
    assert not watched.hold()


def test_a_look_that_was_too_careful_is_a_quick_one_again() -> None:
    tensor = torch.zeros(4, 4)
    watched = Addresses([tensor])
    data = tensor.data
    tensor.data = data.clone()
    assert not watched.hold()
    tensor.data = torch.from_numpy(data.numpy())  # another storage over the same memory
    assert quickly(watched) == 0
    assert watched.hold()
    assert quickly(watched) == 1


def test_values_may_change_under_the_look() -> None:
    tensor = torch.zeros(4, 4)
    watched = Addresses([tensor])
    tensor.add_(1)
    tensor.requires_grad_()
    tensor.grad = torch.ones(4, 4)
    assert quickly(watched) == 1


def test_described_tensors_are_no_longer_lived_for_that() -> None:
    tensor = torch.zeros(4, 4)
    watched = Addresses([tensor])
    gone = weakref.ref(tensor)
    del tensor, watched
    gc.collect()
    assert gone() is None


def test_where_a_trial_fails_dlpack_is_asked(monkeypatch: pytest.MonkeyPatch, slow: None) -> None:
    # Sees how many dimensions there are, and nothing behind.
    blind = quick_look._offsets()._replace(nbytes=8)
    monkeypatch.setattr(quick_look, "_offsets", lambda: blind)
    assert not begin(NATIVE)
    check_that_dlpack_is_asked()
    monkeypatch.undo()


def test_where_torchs_memory_is_not_as_we_know_it_dlpack_is_asked(
    monkeypatch: pytest.MonkeyPatch, slow: None
) -> None:
    monkeypatch.setattr(quick_look, "_word", lambda address: 0)
    assert not begin(NATIVE)
    check_that_dlpack_is_asked()
    monkeypatch.undo()


def check_that_dlpack_is_asked() -> None:
    tensor = torch.zeros(4, 4)
    watched = Addresses([tensor])
    assert (quickly(watched), watched.hold()) == (0, True)
    tensor.data = tensor.data.t()
    assert not watched.hold()
