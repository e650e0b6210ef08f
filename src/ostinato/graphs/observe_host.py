"""Reads by the host that leave no aten call.

On a CPU `x.cpu()`, `x.numpy()`, `print(x)` and `x.data_ptr()` hand over memory without any aten
call, and waiting for a device never is one. They are caught on the level of Python functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ostinato.graphs.observe_notes import Notes
from ostinato.graphs.reasons import Reason

_HANDED_OVER = "a tensor's memory is handed to the host"
_READERS = (
    "cpu",
    "numpy",
    "tolist",
    "__array__",
    "__repr__",
    "__format__",
    "__dlpack__",
    "data_ptr",
    "untyped_storage",
)
_READS: dict[Any, str] = {getattr(Tensor, name): f"Tensor.{name}" for name in _READERS}


class HostWatcher(TorchFunctionMode):
    """Notes Python functions that give a CPU tensor's memory or value to Python."""

    def __init__(self, notes: Notes, device: torch.device) -> None:
        super().__init__()
        self._notes = notes
        self._on_cpu = device.type == "cpu"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._on_cpu:  # on a GPU each of these ends in an aten call, or reads an address only
            op = _READS.get(func) or ("Tensor.to" if _is_move_to_cpu(func, args, kwargs) else None)
            if op is not None:
                self._notes.refuse(Reason.HOST_SYNC, op, _HANDED_OVER)
        return func(*args, **kwargs)


def _is_move_to_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the code says "cpu" in so many words; a device taken from a tensor is fine."""
    if func is not Tensor.to:
        return False
    target = args[1] if len(args) > 1 else kwargs.get("device")
    return isinstance(target, str) and target.partition(":")[0] == "cpu"


@dataclass(frozen=True, slots=True)
class _Hidden:
    """A function that no mode of torch sees."""

    owner: Any
    name: str
    detail: str
    on_cpu_only: bool = False

    @property
    def op(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


_WAITS = "the host waits for the device"
_HIDDEN = (
    _Hidden(torch.cuda, "synchronize", _WAITS),
    _Hidden(torch.cpu, "synchronize", _WAITS),
    _Hidden(torch.accelerator, "synchronize", _WAITS),
    _Hidden(torch.cuda.Stream, "synchronize", _WAITS),
    _Hidden(torch.cuda.Event, "synchronize", _WAITS),
    _Hidden(torch.utils.dlpack, "to_dlpack", _HANDED_OVER, on_cpu_only=True),
)


class _Patches:
    """Replaces the hidden functions while any thread observes; notes observing threads alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = threading.local()
        self._observers = 0
        self._originals: list[tuple[_Hidden, Any]] = []

    def enter(self, notes: Notes, is_cpu: bool) -> tuple[Notes, bool] | None:
        with self._lock:
            if self._observers == 0:
                for hidden in _HIDDEN:
                    original = getattr(hidden.owner, hidden.name)
                    self._originals.append((hidden, original))
                    setattr(hidden.owner, hidden.name, self._noting(hidden, original))
            self._observers += 1
        outer: tuple[Notes, bool] | None = getattr(self._here, "observer", None)
        self._here.observer = (notes, is_cpu)
        return outer

    def leave(self, outer: tuple[Notes, bool] | None) -> None:
        self._here.observer = outer
        with self._lock:
            self._observers -= 1
            if self._observers == 0:
                for hidden, original in self._originals:
                    setattr(hidden.owner, hidden.name, original)
                self._originals = []

    def _noting(self, hidden: _Hidden, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def noted(*args: Any, **kwargs: Any) -> Any:
            observer = getattr(self._here, "observer", None)
            if observer is not None and (observer[1] or not hidden.on_cpu_only):
                observer[0].refuse(Reason.HOST_SYNC, hidden.op, hidden.detail)
            return original(*args, **kwargs)

        return noted


_PATCHES = _Patches()


@contextmanager
def hidden_calls_are_seen(notes: Notes, device: torch.device) -> Iterator[None]:
    """Note waits for the device and exports of memory by this thread until the block ends."""
    outer = _PATCHES.enter(notes, device.type == "cpu")
    try:
        yield
    finally:
        _PATCHES.leave(outer)
