"""What `torch.cuda` answers while a GPU is pretended.

Code asks which device is current, what it can do, which stream is used. On a build without CUDA
each of these raises. Meanwhile they answer like a GPU of compute capability 9.0 that does nothing.
The answers hold for the whole process, so a check belongs into a process of its own, as the
command line makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor

CAPABILITY = (9, 0)
_MEMORY_BYTES = 80 << 30
_SM_COUNT = 132


class _Stream:
    """A stream on which nothing runs."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self.cuda_stream = 0

    def synchronize(self) -> None:
        torch.cuda.synchronize()  # looked up now: whoever watches has put itself there

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Event:
    """An event of nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def record(self, stream: Any = None) -> None: ...
    def wait(self, stream: Any = None) -> None: ...
    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def elapsed_time(self, other: Any) -> float:
        torch.cuda.synchronize()
        return 1.0


_Generator = torch.Generator


class _AnyGenerator(type(_Generator)):  # type: ignore[misc]
    """Has every generator of torch for an instance: modes are given plain ones."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Generator)


class PretendedGenerator(_Generator, metaclass=_AnyGenerator):
    """A generator that says it lies on the GPU; one of the host does its work."""

    _SHOWN: ClassVar[dict[int, torch.device]] = {}

    def __new__(cls, device: Any = "cpu") -> Self:
        made: Self = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        shown = torch.device(device)
        if shown.type == "cuda" and shown.index is None:
            shown = torch.device("cuda", torch.cuda.current_device())
        cls._SHOWN[int(made._cdata)] = shown  # type: ignore[attr-defined]
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place_of(self)

    @classmethod
    def place_of(cls, generator: torch.Generator) -> torch.device:
        """Return where a generator says that it lies; a mode may be given a wrapper of it."""
        known = cls._SHOWN.get(int(generator._cdata))  # type: ignore[attr-defined]
        return known or torch.device("cpu")


class _Device:
    """Which device is current; there are `count`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.current = 0

    def set(self, device: Any) -> None:
        self.current = _number(device, self.current)

    @contextmanager
    def use(self, device: Any) -> Iterator[None]:
        before, self.current = self.current, _number(device, self.current)
        try:
            yield
        finally:
            self.current = before


def _number(device: Any, current: int) -> int:
    if device is None:
        return current
    if isinstance(device, int):
        return device if device >= 0 else current
    index = torch.device(device).index
    return current if index is None else index


@contextmanager
def pretended_cuda(count: int = 1) -> Iterator[Callable[[], int]]:
    """Let `torch.cuda` answer for `count` GPUs; yields what tells the current one."""
    device = _Device(count)
    stream = _Stream()
    changed: list[tuple[Any, str, Any, bool]] = []
    try:
        for owner, name, value in _answers(device, stream):
            changed.append((owner, name, getattr(owner, name, None), hasattr(owner, name)))
            setattr(owner, name, value)
        yield lambda: device.current
    finally:
        for owner, name, before, was_there in reversed(changed):
            if was_there:
                setattr(owner, name, before)
            else:
                delattr(owner, name)


def _answers(device: _Device, stream: _Stream) -> Iterator[tuple[Any, str, Any]]:
    cuda = torch.cuda
    for name, value in _of_the_device(device).items():
        yield cuda, name, value
    for name, value in _of_streams(stream).items():
        yield cuda, name, value
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated",
                 "max_memory_reserved"):  # fmt: skip
        yield cuda, name, lambda *_, **__: 0
    for name in ("empty_cache", "synchronize", "reset_peak_memory_stats", "init", "_lazy_init",
                 "manual_seed", "manual_seed_all", "ipc_collect"):  # fmt: skip
        yield cuda, name, lambda *_, **__: None
    for name in ("range_push", "range_pop", "mark"):
        yield cuda.nvtx, name, lambda *_, **__: 0
    yield torch, "Generator", PretendedGenerator
    yield torch.accelerator, "is_available", lambda: True
    yield torch.accelerator, "synchronize", lambda *_, **__: None
    yield (
        torch.accelerator,
        "current_accelerator",
        lambda *_, **__: torch.device("cuda"),
    )
    yield nn.Module, "_apply", _apply
    # A build with CUDA would start the GPU for the first fake tensor that pretends to lie there.
    yield fake_tensor, "init_gpu_context", lambda *_: None


def _of_the_device(device: _Device) -> dict[str, Any]:
    properties = SimpleNamespace(
        name="pretended GPU",
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=_MEMORY_BYTES,
        multi_processor_count=_SM_COUNT,
        warp_size=32,
        gcnArchName="",
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: device.count,
        "current_device": lambda: device.current,
        "set_device": device.set,
        "device": device.use,
        "get_device_capability": lambda *_: CAPABILITY,
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (_MEMORY_BYTES, _MEMORY_BYTES),
        "default_generators": tuple(PretendedGenerator(f"cuda:{i}") for i in range(device.count)),
    }


def _of_streams(stream: _Stream) -> dict[str, Any]:
    @contextmanager
    def on_stream(_: Any) -> Iterator[None]:
        yield

    return {
        "Stream": _Stream,
        "Event": _Event,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "set_stream": lambda _: None,
        "stream": on_stream,
        "is_current_stream_capturing": lambda: False,
    }


def _apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Do as `nn.Module._apply` does, but put new parameters in the place of the old.

    torch exchanges the contents of two tensor objects, which fake ones do not allow. A parameter
    that two modules share stays shared.
    """
    if recurse:
        for child in module.children():
            child._apply(fn)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = _changed(parameter, fn)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def _changed(parameter: nn.Parameter, fn: Callable[[Tensor], Tensor]) -> nn.Parameter:
    known: dict[Any, nn.Parameter] = parameter.__dict__.setdefault("_ostinato_moved", {})
    with torch.no_grad():
        made = fn(parameter)
    if made is parameter:
        return parameter
    key = (made.device, made.dtype)
    if key not in known:
        known[key] = nn.Parameter(made, parameter.requires_grad)
    return known[key]
