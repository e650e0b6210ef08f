"""A callable that replays recordings of another one: what users hold and ask. See `graphed`.

`player.py` is the path of a call; this is the handle round it.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Generic, ParamSpec, Self, TypeVar

import torch
from torch import Tensor

from ostinato.graphs.backends.ending import Bell
from ostinato.graphs.decision import Decision
from ostinato.graphs.loop import Loop
from ostinato.graphs.options import Options
from ostinato.graphs.player import Player
from ostinato.graphs.reasons import Reason
from ostinato.graphs.report import Report
from ostinato.graphs.reporting import report_on
from ostinato.graphs.tree import LEAF
from ostinato.graphs.watch import Change
from ostinato.graphs.weights import copy_into, find_module

P = ParamSpec("P")
R = TypeVar("R")


class Runner(Generic[P, R]):
    """What `graphed` returns; call it as you would the original. See `graphed` for the options.

    Safe to call from any number of threads; each recording serves one call at a time.

    Attributes:
        fn: The original callable.
    """

    def __init__(self, fn: Callable[P, R], options: Options) -> None:
        self.fn = fn
        self._options = options
        self._player = Player(fn, options, _name_of(fn))
        self._store = self._player.store
        # Not the attributes: those of a module are its parameters.
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the original returns for the same arguments."""
        # A tracer answers this by itself and looks no further; the player asks what else there is.
        if torch.compiler.is_dynamo_compiling():
            return self.fn(*args, **kwargs)
        return self._player.call(args, kwargs)  # type: ignore[return-value]  # a cast is a call

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as a method, so that `@graphed` works inside a class."""
        return self if instance is None else types.MethodType(self, instance)

    @property
    def last(self) -> Decision | None:
        """The decision on this thread's latest call, or on any thread's if it made none."""
        return self._player.chronicle.last

    def report(self) -> Report:
        """Return what happened so far."""
        player = self._player
        return report_on(player.chronicle, self._store, player.recorder.backend_name)

    def warm(self, *args: P.args, **kwargs: P.kwargs) -> Decision:
        """Record these arguments' signature now, without answering or changing anything.

        Returns:
            The decision: recorded; replayed if a recording exists; or eager with the reason why
            none can be made.
        """
        return self._player.warm(args, kwargs)

    def loop(
        self, device: torch.device, *, until: Tensor | None = None, bell: Bell | None = None
    ) -> Loop[P]:
        """Return a way to make calls in series: on a GPU as one launch, without the host between.

        The calls take no tensors and hand nothing out: what changes lies in tensors that the
        callable holds. Where the driver cannot loop, and with random generators, the replays are
        queued one by one, and `why_queued` says so.

        Args:
            device: Where the callable runs.
            until: One dimension of whole numbers or booleans, whose memory must stay: a series ends
                before the call at which none of them is 0.
            bell: A series ends after the call during which any thread rings it.

        Raises:
            UsageError: OST1016, `until` is no such tensor.
            WrongTypeError: OST1016, it is no tensor, or `bell` is no bell.
        """
        return Loop(self._player, device, until, bell)

    def update_weights(self, state_dict: Mapping[str, Tensor]) -> None:
        """Copy new weights into the module's own tensors; recordings stay valid, none is made anew.

        The next padded calls of each are compared with eager runs once more.

        No replay runs meanwhile: each sees all of the old weights or all of the new. Waits for the
        device.

        Args:
            state_dict: As `module.state_dict()` gives it; cast and moved as needed.

        Raises:
            UsageError: OST1013, names or shapes differ, and nothing was changed; OST1014, the
                callable does not reach exactly one module.
        """
        module = find_module(self._player.watches.over((), LEAF, self._player).modules)
        with ExitStack() as replays_held_back:
            graphs = sorted(self._store.graphs(), key=lambda graph: graph.graph_id)
            for graph in graphs:  # in one order, so that two threads cannot block each other
                replays_held_back.enter_context(graph.lock)
                if not graph.is_released:
                    graph.recording.enter()  # after replays in flight on other streams
            copy_into(module, state_dict)
            for graph in graphs:  # a bias that was zero may have hidden what padding does
                graph.padding = graph.padding and graph.padding.anew()
            for device in {t.device for t in module.state_dict().values() if _is_on_gpu(t)}:
                torch.cuda.current_stream(device).synchronize()  # before replays on other streams

    def invalidate(self, reason: str | Reason = Reason.INVALIDATED) -> None:
        """Drop all recordings; each signature is recorded anew when it comes again.

        Args:
            reason: A `Reason`, or a sentence for the report.
        """
        if isinstance(reason, Reason):
            self._player.drop_all(Change(reason, "invalidate() was called"))
        else:
            self._player.drop_all(Change(Reason.INVALIDATED, str(reason)))

    def close(self) -> None:
        """Release all recordings. Later calls run eagerly with the reason `closed`."""
        self._player.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[object, ...]:
        # A decorated function is found by its name, as any function is.
        if _find(self.fn) is self:
            return self.fn.__qualname__
        # Copies and other processes get a runner without recordings: those are addresses.
        return (Runner, (self.fn, self._options))

    def __repr__(self) -> str:
        graphs = len(self._store.graphs())
        return f"<graphed {self._player.chronicle.name}: {graphs} recordings, last {self.last}>"


def _name_of(fn: object) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def _find(fn: object) -> object:
    """Return what stands in `fn`'s module under its name."""
    found: object = sys.modules.get(getattr(fn, "__module__", None) or "")
    for part in getattr(fn, "__qualname__", "<nothing>").split("."):
        found = getattr(found, part, None)
    return found


def _is_on_gpu(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_cuda
