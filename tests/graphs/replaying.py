"""Insist that a call was replayed, and that the replay did the work.

A recording that does nothing still passes a test when its outputs hold the last answer. So before
every checked replay the recording's own outputs are emptied, its inputs overwritten, and its
padding poisoned where the runner does not claim to know it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ostinato.graphs import Lease, Outcome, Reason, Runner, graphed
from ostinato.graphs.backends.cuda_capture import CAPTURE_LOCK
from ostinato.graphs.graph import Graph
from ostinato.graphs.padding import poison
from ostinato.graphs.tree import flatten


def record(fn: Callable[..., Any], *args: Any, **options: Any) -> Runner[..., Any]:
    """Return a runner whose first call, with copies of `args`, was recorded."""
    runner = graphed(fn, admit_after=1, **options)
    runner(*copy.deepcopy(args))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED, runner.last
    return runner


def spoil(runner: Runner[..., Any]) -> None:
    """Empty the outputs of every recording, overwrite its inputs and poison its padding."""
    for graph in runner._store.graphs():
        with graph.lock, torch.inference_mode():  # other threads may be calling it
            _wait_for_all_streams()
            for static in graph.hand_out.made:
                _every_element_once(static).zero_()
            padded = {id(each.static) for each in graph.inputs._padded}
            for static in graph.inputs.tensors:
                if id(static) not in padded:
                    _overwrite(_every_element_once(static))
            _poison_padding(graph)
            _wait_for_all_streams()


def _wait_for_all_streams() -> None:
    # CUDA forbids to wait for a whole device on which any thread captures, and ends the capture.
    if torch.cuda.is_initialized():
        with CAPTURE_LOCK:
            torch.cuda.synchronize()


def _every_element_once(tensor: Tensor) -> Tensor:
    firsts = tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())
    return tensor[firsts]


def _overwrite(tensor: Tensor) -> None:
    is_number = tensor.is_floating_point() or tensor.is_complex()
    tensor.fill_(777.0) if is_number else tensor.zero_()


def _poison_padding(graph: Graph) -> None:
    for padded in graph.inputs._padded:
        # Where the runner says that a constant fill is still there, it is left as the last run left
        # it: the runner is taken at its word.
        is_known = not isinstance(padded.fill, str) or padded.fill == "zero"
        end = padded.clean_from if is_known else None
        poison(
            padded.static if end is None else padded.static.narrow(padded.dim, 0, end),
            padded.dim,
            0,
        )


def check_replay(runner: Runner[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Replay one call; return what it gave, after comparing everything with an eager call.

    Compared: values, types, dtypes, devices, strides, what shares memory with what among arguments
    and results, and what became of the arguments. Afterwards the recording is spoilt again, and
    neither the result nor the arguments may notice.
    """
    eager_args, eager_kwargs = copy.deepcopy((args, kwargs))
    expected = runner.fn(*eager_args, **eager_kwargs)
    wanted = _plain((expected, eager_args, eager_kwargs))
    spoil(runner)
    result = runner(*args, **kwargs)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED, runner.last
    _assert_alike(_plain((result, args, kwargs)), wanted)
    spoil(runner)
    if runner._options.outputs == "owned":
        _assert_alike(_plain((result, args, kwargs)), wanted)
    return result


def check_eager(runner: Runner[..., Any], reason: Reason, *args: Any, **kwargs: Any) -> Any:
    """Call; return what it gave, which must come from an eager run for that reason."""
    eager_args, eager_kwargs = copy.deepcopy((args, kwargs))
    expected = runner.fn(*eager_args, **eager_kwargs)
    result = runner(*args, **kwargs)
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, reason), runner.last
    _assert_alike((result, args, kwargs), (expected, eager_args, eager_kwargs))
    return result


def _plain(value: object) -> Any:
    leaves, structure = flatten(value)
    opened = [leaf.get() if isinstance(leaf, Lease) else leaf for leaf in leaves]
    return structure.unflatten([t.detach() if isinstance(t, Tensor) else t for t in opened])


def _assert_alike(mine: Any, theirs: Any) -> None:
    my_leaves, my_structure = flatten(mine)
    their_leaves, their_structure = flatten(theirs)
    assert my_structure == their_structure
    for path, a, b in zip(my_structure.paths, my_leaves, their_leaves, strict=True):
        assert type(a) is type(b), path
        if isinstance(a, Tensor):
            strided = a.layout is torch.strided
            say = functools.partial("{}: {}".format, path)
            torch.testing.assert_close(
                a, b, rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=strided, msg=say
            )
        elif isinstance(a, float | complex):
            assert repr(a) == repr(b), path
    assert sharing(my_leaves) == sharing(their_leaves)


def sharing(leaves: list[Any]) -> list[tuple[int, int]]:
    """Return for each tensor the first one with its storage, and how many bytes it is behind."""
    first: dict[int, tuple[int, int]] = {}
    found = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.numel():
            at, start = first.setdefault(leaf.untyped_storage()._cdata, (index, leaf.data_ptr()))
            found.append((at, leaf.data_ptr() - start))
    return found
