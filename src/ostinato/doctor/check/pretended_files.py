"""Read weights onto a GPU that is not there.

The library safetensors writes what it reads straight into the memory of the tensor that it made,
and a tensor without contents has none: the process would die. So files are opened for the host, and
each tensor is moved when it is taken out, which is where a pretended device comes in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self


class _Slice:
    """A part of a file, whose tensors are moved."""

    def __init__(self, part: Any, device: Any) -> None:
        self._part = part
        self._device = device

    def __getitem__(self, index: Any) -> Any:
        return self._part[index].to(self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class _Opened:
    """An open file, whose tensors are moved."""

    def __init__(self, opened: Any, device: Any) -> None:
        self._opened = opened
        self._device = device

    def get_tensor(self, name: str) -> Any:
        return self._opened.get_tensor(name).to(self._device)

    def get_slice(self, name: str) -> Any:
        return _Slice(self._opened.get_slice(name), self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def __enter__(self) -> Self:
        self._opened.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)


@contextmanager
def files_are_read_on_the_host() -> Iterator[None]:
    """Have every open of a safetensors file read on the host, under whatever name it is known."""
    opens = getattr(sys.modules.get("safetensors"), "safe_open", None)
    if opens is None:
        yield
        return
    stand_in = _opening(opens)
    bound = list(_bindings(opens))
    try:
        for names, name in bound:
            names[name] = stand_in
        yield
    finally:
        for names, name in bound:
            names[name] = opens


def _opening(opens: Callable[..., Any]) -> Callable[..., Any]:
    def safe_open(filename: Any, framework: str, device: Any = "cpu", **rest: Any) -> Any:
        return _Opened(opens(filename, framework=framework, device="cpu", **rest), device)

    return safe_open


def _bindings(value: object) -> Iterator[tuple[dict[str, Any], str]]:
    """Find the modules that hold `value`: most import it by name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None) or {}
        for name, held in list(names.items()):
            if held is value:
                yield names, name
