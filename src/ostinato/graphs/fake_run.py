"""Run a function on tensors without data, at sizes of our choosing, and leave no trace.

Fake tensors know their shape, type and device and hold nothing, so a run costs no device work and
no memory. `extents.py` uses it to see which output dimensions follow the size of an input.

Three traps are closed here. Under `FakeTensorMode` an arithmetic op whose tensors are all real
really runs (`num_batches_tracked.add_(1)` counts), so every real tensor is made fake first. The
autocast cache would keep fake copies of real weights for later calls, so it is off. And `forward`
may leave fake tensors in attributes: `extents.py` puts the reachable Python state back. Compiled
functions run as what they were compiled from.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.graphs.observe_compiled import compiled_code_runs_eagerly
from ostinato.graphs.tree import Structure

_FAKES_LOG = logging.getLogger("torch._subclasses.fake_tensor")

Resized = Mapping[int, Mapping[int, int]]
"""Leaf index to its new sizes by dimension."""


def run_on_fakes(
    fn: Callable[..., object], leaves: Sequence[object], structure: Structure, resized: Resized
) -> object:
    """Return what `fn(*args, **kwargs)` returns when its tensors are fake.

    Grad mode, inference mode and autocast are those of the caller. Python state that `fn` changes
    is not put back here (see `python_state.remember`).

    Args:
        fn: Any callable; modules it closes over may hold real tensors.
        leaves: Leaves of `(args, kwargs)`.
        structure: Structure of `(args, kwargs)`.
        resized: Which leaves get other sizes.
    """
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    with (
        warnings.catch_warnings(),
        _torch_logs_nothing(),
        _no_autocast_cache(),
        compiled_code_runs_eagerly(),
    ):
        # What there is to warn about, the user sees in the eager run.
        warnings.simplefilter("ignore")
        with fakes:
            args, kwargs = structure.unflatten(list(_fake_leaves(fakes, leaves, resized)))
            with _EveryTensorFake(fakes):
                return fn(*args, **kwargs)


class _EveryTensorFake(TorchDispatchMode):
    """Makes the real tensors among an op's arguments fake, before the fake mode sees them."""

    def __init__(self, fakes: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fakes = fakes

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        # `torch.tensor(3)` lifts a real constant, whose value the fake mode then knows.
        if func not in _LIFTS:
            args = [self._fake(value) for value in args]
            kwargs = {name: self._fake(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _fake(self, value: Any) -> Any:
        # Tensors in lists can wait for the fake mode: no op on lists mistakes them for numbers.
        is_real = isinstance(value, Tensor) and not isinstance(value, FakeTensor)
        return self.fakes.from_tensor(value) if is_real else value


_LIFTS = frozenset(
    {
        torch.ops.aten.lift.default,
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten.lift_fresh_copy.default,
    }
)


def _fake_leaves(
    fakes: FakeTensorMode, leaves: Sequence[object], resized: Resized
) -> Iterator[object]:
    made: dict[tuple[int, tuple[tuple[int, int], ...]], Tensor] = {}
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            yield leaf
            continue
        sizes = resized.get(index, {})
        key = (id(leaf), tuple(sorted(sizes.items())))
        if key not in made:  # the same tensor given twice stays the same tensor
            made[key] = _resized(leaf, sizes) if sizes else fakes.from_tensor(leaf)
        yield made[key]


def _resized(tensor: Tensor, sizes: Mapping[int, int]) -> Tensor:
    """A new tensor like this one (order of strides, expanded dimensions) at other sizes."""
    shape = [sizes.get(dim, size) for dim, size in enumerate(tensor.shape)]
    strides = [0] * tensor.dim()
    step = 1
    # Ties (dimensions of one element) go by position, as in a contiguous tensor.
    for dim in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), -d)):
        if tensor.stride(dim) != 0:
            strides[dim] = step
            step *= shape[dim]
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)


@contextmanager
def _torch_logs_nothing() -> Iterator[None]:
    """Keep what fake tensors log of failed calls to ourselves: a size that fails is an answer."""
    here = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return threading.get_ident() != here

    _FAKES_LOG.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        _FAKES_LOG.removeFilter(is_of_another_thread)


@contextmanager
def _no_autocast_cache() -> Iterator[None]:
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)
