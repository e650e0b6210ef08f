"""Where weights come from: the safetensors files of a folder, or a state dict in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors import safe_open

from ostinato.checkpoints.weights import stored_tensors
from ostinato.errors import WrongTypeError

if TYPE_CHECKING:
    from torch import Tensor

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_NUMBER_NAMES = MappingProxyType(
    {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
)
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class WeightSource(Protocol):
    """Named tensors, of which the shapes are known before any is read."""

    def shapes(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Return each tensor's shape and number type, the latter as safetensors calls it."""
        ...

    def read(self, name: str) -> Tensor:
        """Return one tensor, on any device."""
        ...


class StateSource:
    """A state dict of plain tensors, such as can be copied.

    Raises:
        WrongTypeError: OST5205, a name is no text, or a value no plain tensor.
    """

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        for name, value in state.items():
            _check_entry(name, value)
        self._state = dict(state)

    def shapes(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {
            name: (tuple(value.shape), _NUMBER_NAMES.get(value.dtype, str(value.dtype)))
            for name, value in self._state.items()
        }

    def read(self, name: str) -> Tensor:
        return self._state[name]


def _check_entry(name: object, value: object) -> None:
    if not isinstance(name, str):
        raise _no_state(f"the state dict names a tensor by {name!r:.80}, which is no text")
    if not isinstance(value, torch.Tensor):
        raise _no_state(f"the state dict holds {type(value).__name__} under {name!r}, not a tensor")
    strange = _why_not_plain(value)
    if strange:
        raise _no_state(f"{name} of the state dict cannot be copied: {strange}")


def _why_not_plain(value: Tensor) -> str:
    """Return what keeps a tensor's numbers from being copied; empty if nothing does."""
    if type(value) not in _PLAIN:
        return f"it is a {type(value).__name__}, not a plain tensor"
    if value.is_quantized or value.layout is not torch.strided:
        return f"it is stored as {value.dtype if value.is_quantized else value.layout}"
    if value.device.type == "meta":
        return "it is on the meta device, where tensors have no numbers"
    if value.numel() and not value.untyped_storage().nbytes():
        return "its memory was given back"
    return ""


def _no_state(problem: str) -> WrongTypeError:
    return WrongTypeError(
        problem,
        code="OST5205",
        remedy="pass the state_dict() of a model that is loaded whole, not quantised or sharded",
    )


class FolderSource:
    """A folder's model.safetensors or its shards; only headers are read before `read`.

    Raises:
        UsageError: OST2021 to OST2023, files are missing or corrupt.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file_of = _file_of(folder)
        self._open: dict[str, Any] = {
            file: safe_open(folder / file, framework="pt", device="cpu")
            for file in set(self._file_of.values())
        }

    def shapes(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        found = {}
        for name, file in self._file_of.items():
            stored: Any = self._open[file].get_slice(name)
            found[name] = (tuple(stored.get_shape()), str(stored.get_dtype()))
        return found

    def read(self, name: str) -> Tensor:
        value: Tensor = self._open[self._file_of[name]].get_tensor(name)
        return value


def _file_of(folder: Path) -> dict[str, str]:
    """Return the file of each tensor, once all files are known to be there and whole."""
    names = stored_tensors(folder)
    if (folder / _SINGLE).is_file():
        return dict.fromkeys(names, _SINGLE)
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    return {name: str(index["weight_map"][name]) for name in names}
