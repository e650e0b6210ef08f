"""Reads by the host, and what else of a run leaves no aten call.

On a CPU `x.cpu()`, `x.numpy()`, `print(x)` and `x.data_ptr()` hand over memory without any aten
call, and waiting for a device never is one; `torch.tensor([x[0], 1.0])` reads below that level. All
of it is caught on the level of Python functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ostinato.graphs.aten_calls import storage_id
from ostinato.graphs.interrupts import hand_on_signals
from ostinato.graphs.observe_facts import ASKED, CHANGED, SETS_DATA, SETS_REQUIRES_GRAD
from ostinato.graphs.observe_journal import Journal
from ostinato.graphs.observe_notes import Notes
from ostinato.graphs.reasons import Reason

_HANDED_OVER = "a tensor's memory is handed to the host"
_NO_KEY = (
    "it asks what may differ between two inputs of the same shape, and a replay keeps the answer"
)
_LEFT_ON_TWIN = "what is set on a tensor in Python is set in no replay"
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


# Called by C++ on the numbers in a list, they read without any aten call.
_NUMBERS: dict[Any, str] = {
    getattr(Tensor, name): f"Tensor.{name}"
    for name in ("__bool__", "__complex__", "__float__", "__index__", "__int__", "item")
}
_FROM_LISTS: dict[Any, str] = {
    torch.tensor: "torch.tensor",
    torch.as_tensor: "torch.as_tensor",
    torch.asarray: "torch.asarray",
    Tensor.new_tensor: "Tensor.new_tensor",
    Tensor.new: "Tensor.new",
}
_INDEXING: dict[Any, str] = {
    getattr(Tensor, name): f"Tensor.{name}" for name in ("__getitem__", "__setitem__")
}
_LONGEST_TUPLE = 31
"""A shorter list that indexes a tensor is taken for a tuple if it holds tensors."""
_READ_FROM_LIST = "the tensors in a list are read by Python, one by one, so the host waits for them"


class HostWatcher(TorchFunctionMode):
    """Notes Python functions that read a tensor, or ask or change what no key holds, unseen.

    Args:
        notes: Where refusals go.
        device: Where the step is meant to run.
        inputs: The tensors that it is given.
        journal: Keeps what a tensor looked at before its memory was exchanged.
    """

    def __init__(
        self,
        notes: Notes,
        device: torch.device,
        inputs: Sequence[Tensor] = (),
        journal: Journal | None = None,
    ) -> None:
        super().__init__()
        self._notes = notes
        self._on_cpu = device.type == "cpu"
        self._inputs = {storage_id(t) for t in inputs if t.layout is torch.strided}
        self._journal = journal

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        try:
            return self._answer(func, args, kwargs or {})
        finally:
            hand_on_signals()  # the last thing, as in `AtenMode`

    def _answer(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if func in _NUMBERS:
            return self._number(func, args, kwargs)
        if func in _FROM_LISTS or func in _INDEXING:
            self._note_lists(func, args, kwargs)
        elif func in CHANGED:
            return self._change(func, args, kwargs)
        elif func in ASKED:
            if self._is_given(args[0]):
                self._notes.refuse(Reason.UNSUPPORTED_INPUT, ASKED[func], _NO_KEY)
        elif self._on_cpu:  # on a GPU each ends in an aten call, or reads an address only
            op = _READS.get(func) or ("Tensor.to" if _is_move_to_cpu(func, args, kwargs) else None)
            if op is not None:
                self._notes.refuse(Reason.HOST_SYNC, op, _HANDED_OVER)
        return func(*args, **kwargs)

    def _number(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        before = len(self._notes.refusals)
        result = func(*args, **kwargs)
        if len(self._notes.refusals) == before and self._is_ours(args[0]):
            self._notes.refuse(Reason.HOST_SYNC, _NUMBERS[func], _READ_FROM_LIST)
        return result

    def _note_lists(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        given: Iterable[object]
        if func in _INDEXING:
            is_tuple = isinstance(args[1], tuple) or (
                isinstance(args[1], list) and len(args[1]) <= _LONGEST_TUPLE
            )
            given = args[1] if is_tuple else args[1:2]
        else:
            given = (*args, *kwargs.values())
        if any(self._is_ours(tensor) for each in given for tensor in _inside(each)):
            op = _INDEXING.get(func) or _FROM_LISTS[func]
            self._notes.refuse(Reason.HOST_SYNC, op, _READ_FROM_LIST)

    def _change(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if func == SETS_DATA and self._journal is not None:
            with _disable_current_modes():
                self._journal.before_exchange(args[0])
        before = args[0].requires_grad
        result = func(*args, **kwargs)
        if func not in SETS_REQUIRES_GRAD or args[0].requires_grad != before:
            self._notes.refuse(Reason.PYTHON_SIDE_EFFECT, CHANGED[func], _LEFT_ON_TWIN)
        return result

    def _is_ours(self, tensor: Tensor) -> bool:
        """Whether the host waits for it: numbers of the host beside a GPU are Python values."""
        return self._on_cpu or tensor.device.type != "cpu"

    def _is_given(self, tensor: Tensor) -> bool:
        return tensor.layout is torch.strided and storage_id(tensor) in self._inputs


def _inside(value: object) -> Iterator[Tensor]:
    """Yield the tensors within a list, or whatever else torch takes for one."""
    kind = type(value)
    if isinstance(value, Tensor | str | bytes | Mapping | np.ndarray):
        return
    if hasattr(kind, "__getitem__") and hasattr(kind, "__len__"):
        for item in value:  # type: ignore[attr-defined]
            if isinstance(item, Tensor):
                yield item
            else:
                yield from _inside(item)


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
