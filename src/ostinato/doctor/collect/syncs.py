"""Waits of the host for the device: which operation, at which line, how often, how long.

The operations that Python can see are replaced while somebody watches, which costs nothing until
one is called. What waits inside of torch's own C++ is told by torch's sync debug mode on a GPU. On
a CPU nothing waits, so the same operations are noted as what would wait.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ostinato.doctor.activity import Wait, WaitKind
from ostinato.doctor.collect.gates import CALLER, if_by_a_mask, if_given, if_looked
from ostinato.doctor.collect.gpu_use import has_gpu
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.places import (
    is_by_ostinato,
    is_own_code,
    librarys_frame,
    place_of,
    users_frame,
)
from ostinato.doctor.collect.torch_tells import TorchTells
from ostinato.doctor.finding import Place

_MOST_STEP_TIMES = 512
_SCALARS = ("item", "__bool__", "__int__", "__float__", "__index__", "__complex__")
_EXPORTS = ("tolist", "cpu", "numpy", "__array__", "__repr__", "__format__")
_SHAPES = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "bincount")
_WORDS = {"__repr__": "print(tensor)", "__format__": "print(tensor)", "__bool__": "bool(tensor)"}
_WORDS |= {"__int__": "int(tensor)", "__float__": "float(tensor)", "__index__": "index(tensor)"}
_COPIES = ("Tensor.cpu", "Tensor.to")

Decide = Callable[[tuple[Any, ...], dict[str, Any]], tuple[WaitKind, bool, int] | None]


@dataclass(slots=True)
class _Seen:
    op: str
    kind: WaitKind
    codes: tuple[CodeType, CodeType | None]  # kept, so that nothing else has their addresses
    place: Place | None
    count: int = 0
    inside: int = 0
    between: int = 0
    steps: int = 0
    ns: int = 0
    bytes: int = 0
    on_device: bool = False
    step_us: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_STEP_TIMES))


class Syncs:
    """Notes every wait."""

    name = "waits"

    def __init__(self, notebook: Notebook, patches: Patches) -> None:
        self._notebook = notebook
        self._patches = patches
        self._seen: dict[tuple[str, int, int, int, int, bool], _Seen] = {}
        self._cuda = has_gpu()
        self._torch = TorchTells(notebook, self._hear_torch)
        self.read_listeners: list[Callable[[str, Any, FrameType], None]] = []

    def start(self) -> None:
        """Stand before what waits."""
        replace = self._patches.replace
        for name in _SCALARS:
            replace(Tensor, name, self._reads(_word(name), _always(WaitKind.SCALAR)))
        for name in _EXPORTS:
            replace(Tensor, name, self._reads(_word(name), _export))
        for name in _SHAPES:
            decide = _always(WaitKind.SHAPE)
            replace(Tensor, name, self._maker(f"Tensor.{name}", decide))
            replace(torch, name, self._maker(f"torch.{name}", decide))
        replace(torch, "where", self._maker("torch.where(condition)", _where))
        if not replace(Tensor, "__getitem__", if_by_a_mask(self._gated("boolean mask", _mask))):
            self._notebook.problem("reads by a boolean mask are not seen with this Python")
        masked_write = self._gated("boolean mask", _masked_write)
        replace(Tensor, "__setitem__", if_by_a_mask(masked_write))
        replace(torch, "repeat_interleave", self._maker("torch.repeat_interleave", _repeats))
        replace(Tensor, "repeat_interleave", self._maker("Tensor.repeat_interleave", _repeats))
        for name in ("tensor", "as_tensor", "asarray"):
            replace(torch, name, self._maker(f"torch.{name}", _upload))
        if self._cuda:
            kinds = (torch.device, str, int, Tensor, torch.nn.Parameter)
            replace(Tensor, "to", if_given(kinds, self._gated("Tensor.to", _move)))
            replace(Tensor, "cuda", self._maker("Tensor.cuda", _to_cuda))
            replace(Tensor, "copy_", self._maker("Tensor.copy_", _copy_into))
        else:
            # Only "cpu" in so many words would wait.
            replace(Tensor, "to", if_given((str,), self._gated("Tensor.to", _move)))
        for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event, torch.accelerator):
            word = f"{getattr(owner, '__name__', 'cuda').rpartition('.')[2]}.synchronize"
            decide = _always(WaitKind.SYNCHRONIZE, on_device=True)
            replace(owner, "synchronize", self._maker(word, decide))
        if self._cuda:
            self._torch.start()

    def stop(self) -> None:
        """Leave torch's debug mode as it was; the patches are undone together."""
        self._torch.stop()

    def _reads(self, op: str, decide: Decide) -> Callable[[Any], Any]:
        return if_looked(self._maker(op, decide))

    def _gated(self, op: str, decide: Decide) -> Callable[[Any], Any]:
        return self._maker(op, decide, CALLER)

    def _maker(self, op: str, decide: Decide, caller: int = 1) -> Callable[[Any], Any]:
        threads = self._notebook.threads

        def make(original: Any) -> Any:
            def waiting(*args: Any, **kwargs: Any) -> Any:
                if is_compiling():
                    return original(*args, **kwargs)
                local = threads.mine
                if local.quiet or not (local.looks or self._torch.now):
                    return original(*args, **kwargs)
                try:
                    decided = decide(args, kwargs)
                except Exception:  # noqa: BLE001 - odd arguments are the original's to judge
                    decided = None
                shows = decided is not None and decided[0] is WaitKind.EXPORT
                if decided is None or (
                    shows and self._is_no_wait(op, decided, args[0], caller + 1)
                ):
                    return original(*args, **kwargs)
                local.quiet = True
                result: Any = None
                tells = self._torch.now
                if tells:
                    self._torch.hold()
                began = perf_counter_ns()
                try:
                    result = original(*args, **kwargs)
                    return result
                finally:
                    ended = perf_counter_ns()
                    local.quiet = False
                    if tells:
                        self._torch.go_on()
                    if local.looks:
                        frame = sys._getframe(caller)
                        if shows and op in _COPIES:
                            local.copied = (id(result), frame.f_code)
                        self._notebook.note(self._note, op, decided, began, ended, frame)
                        if decided[0] is WaitKind.SCALAR and args[0].requires_grad:
                            for listener in self.read_listeners:
                                self._notebook.note(listener, op, result, frame)

            return waiting

        return make

    def _is_no_wait(
        self, op: str, decided: tuple[WaitKind, bool, int], tensor: Tensor, caller: int
    ) -> bool:
        """Return whether the values are on the host already, so that nobody waits for them.

        Where there is no GPU every tensor stands for one on it, but for what was just copied out.
        """
        if self._cuda:
            return not decided[1]
        here = self._notebook.here
        copied, here.copied = here.copied, None
        return op not in _COPIES and copied == (id(tensor), sys._getframe(caller).f_code)

    def _note(
        self, op: str, decided: tuple[WaitKind, bool, int], began: int, ended: int, frame: Any
    ) -> None:
        kind, on_device, size = decided
        # By lines, because the interpreter makes a call at another instruction once it has
        # specialised the code; and one line of the program may lead to many of a library. Hashing
        # a code object takes longer than all of this, so its address stands for it. A line that
        # waits on the host and, later, for a device is two.
        inner = frame
        if not is_own_code(frame.f_code.co_filename):
            if is_by_ostinato(frame):
                return
            frame = users_frame(frame)
            inner = librarys_frame(inner) or inner
        key = (op, id(inner.f_code), inner.f_lineno, 0, 0, on_device)
        if frame is not inner and frame is not None:
            outer = (id(frame.f_code), frame.f_lineno)
            key = (op, id(inner.f_code), inner.f_lineno, *outer, on_device)
        seen = self._seen.get(key)
        if seen is None:
            codes = (inner.f_code, None if frame is None else frame.f_code)
            place = None if frame is None else place_of(frame, inner)
            # Another thread may have come to the same line meanwhile.
            seen = self._seen.setdefault(
                key, _Seen(op=op, kind=kind, codes=codes, place=place, on_device=on_device)
            )
        local = self._notebook.here
        weight, us = local.weight, (ended - began) / 1e3
        seen.count += weight
        if local.inside:
            seen.inside += weight
        elif local.began:
            seen.between += weight
        if local.began and key not in local.waited:
            local.waited.add(key)
            seen.steps += weight
        seen.ns += weight * (ended - began)
        seen.bytes += weight * size
        seen.step_us.append(us)
        self._notebook.span("wait", op, self._notebook.since_us(began), us)
        for listener in self._notebook.wait_listeners:
            listener(op, seen.place, us, weight)

    def _hear_torch(self, frame: FrameType) -> None:
        now = perf_counter_ns()
        decided = (WaitKind.SYNCHRONIZE, True, 0)
        self._notebook.note(self._note, "a wait inside of torch", decided, now, now, frame)

    def fields(self) -> dict[str, Any]:
        """Return the waits, the most frequent first."""
        waits = [
            Wait(
                op=seen.op,
                kind=seen.kind,
                place=seen.place,
                count=seen.count,
                inside=seen.inside,
                between=seen.between,
                steps=seen.steps,
                us=seen.ns / 1e3,
                step_us=tuple(seen.step_us),
                bytes=seen.bytes,
                on_device=seen.on_device,
            )
            for seen in self._seen.values()
        ]
        return {"waits": tuple(sorted(waits, key=lambda wait: -wait.count))}


def _word(name: str) -> str:
    return _WORDS.get(name, f"Tensor.{name}")


def _always(kind: WaitKind, *, on_device: bool = False) -> Decide:
    def decide(args: tuple[Any, ...], _: dict[str, Any]) -> tuple[WaitKind, bool, int] | None:
        first = args[0] if args else None
        if isinstance(first, Tensor):
            return (kind, first.is_cuda, _bytes(first))
        return (kind, on_device, 0)

    return decide


def _export(args: tuple[Any, ...], _: dict[str, Any]) -> tuple[WaitKind, bool, int] | None:
    return (WaitKind.EXPORT, args[0].is_cuda, _bytes(args[0]))


def _where(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[WaitKind, bool, int] | None:
    if len(args) + len(kwargs) != 1:
        return None
    return (WaitKind.SHAPE, args[0].is_cuda, 0)


def _mask(args: tuple[Any, ...], _: dict[str, Any]) -> tuple[WaitKind, bool, int] | None:
    parts = args[1] if type(args[1]) is tuple else (args[1],)
    if any(type(each) is Tensor and each.dtype is torch.bool and each.ndim for each in parts):
        return (WaitKind.SHAPE, args[0].is_cuda, 0)
    return None


def _masked_write(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = args[2]
    if not isinstance(value, Tensor) or value.ndim == 0:  # becomes masked_fill, which never waits
        return None
    return _mask(args, kwargs)


def _repeats(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats", args[0])
    if kwargs.get("output_size") is not None or not isinstance(repeats, Tensor):
        return None
    return (WaitKind.SHAPE, repeats.is_cuda, 0)


def _upload(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Python values that become a tensor on a device named: the copy waits on a GPU."""
    device = kwargs.get("device")
    if device is None or isinstance(args[0], Tensor):
        return None
    on_gpu = torch.device(device).type == "cuda"
    if not on_gpu and isinstance(device, str):
        return None  # it says "cpu" in so many words, and means it
    return (WaitKind.UPLOAD, on_gpu, 0)


def _move(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copies between host and device that make the host wait."""
    tensor, device = args[0], args[1] if len(args) > 1 else kwargs.get("device")
    if not tensor.is_cuda and isinstance(device, str) and device == "cpu":
        return (WaitKind.EXPORT, False, _bytes(tensor))
    target = _target(args, kwargs)
    return None if target is None else _crossing(tensor, target, kwargs)


def _to_cuda(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _crossing(args[0], "cuda", kwargs)


def _copy_into(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    source = args[1]
    if not isinstance(source, Tensor):
        return None
    if source.is_cuda and not args[0].is_cuda and args[0].is_pinned():
        return None if kwargs.get("non_blocking") else (WaitKind.EXPORT, True, _bytes(source))
    return _crossing(source, args[0].device.type, kwargs)


def _crossing(source: Tensor, target: str, kwargs: dict[str, Any]) -> Any:
    """Return the wait of a copy from one side of the link to the other; None if there is none."""
    non_blocking = bool(kwargs.get("non_blocking", False))
    if source.is_cuda and target == "cpu":
        return (WaitKind.EXPORT, True, _bytes(source))
    if source.is_cuda or target != "cuda":
        return None
    if source.is_pinned():
        return None if non_blocking else (WaitKind.UPLOAD, True, _bytes(source))
    return (WaitKind.PAGEABLE if non_blocking else WaitKind.UPLOAD, True, _bytes(source))


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return "cuda" or "cpu" where the call names a device, else None."""
    device = kwargs.get("device", args[1] if len(args) > 1 else None)
    if isinstance(device, Tensor):
        return device.device.type
    if isinstance(device, torch.device | str):
        return torch.device(device).type
    return "cuda" if isinstance(device, int) and not isinstance(device, bool) else None


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
