"""Have Python's calls of torch work on pretended devices.

What names a device is changed so that no part of torch asks the GPU for it: "cuda" becomes
"cuda:0", and data from Python becomes a tensor on the host that is then moved, which is what a GPU
does too. What shows values (`tolist`, `numpy`, `print`) answers with assumed ones, after the copy
to the host that it would have cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from ostinato.doctor.check.assumed import Assumed
from ostinato.doctor.check.line import Line, users_line
from ostinato.doctor.check.pretended import PretendedMode
from ostinato.doctor.check.traced import Traced

_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
_GETS_IS_CUDA = Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_SHOWS = (Tensor.__repr__, Tensor.__format__, Tensor.tolist, Tensor.numpy, Tensor.__array__)
_GETS_DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]
_BRANCHES = (Tensor.__bool__, Tensor.is_nonzero, torch.is_nonzero, torch.equal, Tensor.equal,
             torch.allclose, Tensor.allclose)  # fmt: skip
_READS = frozenset(
    (*_BRANCHES, *_SHOWS, Tensor.item, Tensor.__int__, Tensor.__float__, Tensor.__index__)
)


class Placing(TorchFunctionMode):
    """Changes devices in calls, and answers what no fake tensor can.

    Args:
        mode: Makes the fake tensors.
        assumed: Values for what is read.
        current: Returns the number of the current device.
        onto: Where tensors that were made before the run are taken to lie; None: where they are.
        traced: Is told which lines read, and whether autocast is on.

    Attributes:
        branches: Path and number of lines that branch on the value of a tensor.
        dtype_reads: Lines that ask for a dtype under autocast that the step itself entered.
        deep_copies: Lines of `copy.deepcopy` of a tensor on a GPU.
    """

    def __init__(
        self,
        mode: PretendedMode,
        assumed: Assumed,
        current: Callable[[], int],
        onto: torch.device | None = None,
        traced: Traced | None = None,
    ) -> None:
        super().__init__()
        self._mode = mode
        self._assumed = assumed
        self._current = current
        self._onto = onto
        self._traced = traced
        self.branches: set[tuple[str, int]] = set()
        self.dtype_reads: dict[Line | None, None] = {}
        self.deep_copies: dict[Line | None, None] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = {name: self._resolved(value) for name, value in (kwargs or {}).items()}
        args = tuple(self._resolved(value) for value in args)
        if func in _READS:
            self._note_read(func)
        if self._traced is not None:
            self._traced.is_autocast = torch.is_autocast_enabled("cuda")
            if self._traced.is_autocast and func == _GETS_DTYPE:
                self.dtype_reads[users_line()] = None
        if func in _SHOWS:
            return self._show(func, args, kwargs)
        if func in (Tensor.to, Tensor.cuda, Tensor.cpu):
            return self._moved(func, args, kwargs)
        if func in _FROM_DATA:
            return self._from_data(func, args, kwargs, kwargs.pop("device", None))
        elif func is Tensor.new_tensor:
            return self._from_data(func, args, kwargs, kwargs.pop("device", args[0].device))
        elif func == _GETS_IS_CUDA:
            return args[0].device.type == "cuda"
        elif func is Tensor.get_device:
            return -1 if args[0].device.type == "cpu" else args[0].device.index
        elif func is Tensor.pin_memory:
            return torch.ops.aten._pin_memory.default(args[0])
        elif func is Tensor.data_ptr and isinstance(args[0], FakeTensor):
            return 0  # torch warns that it has none; nor is it followed where it goes
        elif func is Tensor.__deepcopy__ and _gpu_among(args):
            return self._deep_copy(*args)
        elif isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        if self._traced is None:
            return func(*args, **kwargs)
        self._traced.scope = None if "device" in kwargs else _gpu_among((*args, *kwargs.values()))
        try:
            return func(*args, **kwargs)
        finally:
            self._traced.scope = None

    def _note_read(self, func: Callable[..., Any]) -> None:
        line = users_line()
        if line is not None and self._traced is not None:
            self._traced.lines[line.said] = line
            if func in _BRANCHES:
                self.branches.add((line.path, line.line))

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.placed(value)
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self._resolved(item) for item in value)
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            value = torch.device(value)
        if isinstance(value, torch.device) and value.type == "cuda" and value.index is None:
            return torch.device("cuda", self._current())
        return value

    def placed(self, tensor: Tensor) -> Tensor:
        """Return the twin, on the device, of a tensor of the host that was there before the run."""
        if self._onto is None or tensor.device.type != "cpu" or self._assumed.made_here(tensor):
            return tensor
        return self._mode.twin(tensor, self._onto)

    def _moved(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        """Move a tensor by the call that does it: C++ would find that it lies there already."""
        tensor: Tensor = args[0]
        if func is Tensor.to:
            move = _read_to(args[1:], kwargs)
        else:
            names = ("memory_format",) if func is Tensor.cpu else (
                "device", "non_blocking", "memory_format"
            )  # fmt: skip
            move = {**dict(zip(names, args[1:], strict=False)), **kwargs}
            is_default = func is Tensor.cpu or move.get("device") is None
            if is_default:
                where = "cpu" if func is Tensor.cpu else self._resolved("cuda")
                move["device"] = where
        device = move.pop("device", None)
        if isinstance(device, int):
            device = torch.device("cuda", device)
        device = tensor.device if device is None else torch.device(device)
        is_copied = move.pop("copy", False)
        if device == tensor.device and not is_copied:
            dtype = move.get("dtype")
            if (dtype is None or dtype == tensor.dtype) and move.get("memory_format") is None:
                return tensor
        if tensor.numel() == 0 and device != tensor.device:  # nothing to copy
            dtype = move.get("dtype") or tensor.dtype
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=device)
        moved: Tensor = torch.ops.aten._to_copy.default(tensor, device=device, **move)
        return moved

    def _from_data(
        self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], device: Any
    ) -> Tensor:
        if isinstance(device, int):
            device = torch.device("cuda", device)
        if args and isinstance(args[0], torch.UntypedStorage):  # bytes of a file, for one
            made = self._assumed.made_unseen(lambda: func(*args, **kwargs))
            return made if device is None else self._moved(Tensor.to, (made, device), {})
        if device is None and func is not Tensor.new_tensor:
            # Under `torch.device("cuda")` data goes where every new tensor goes.
            given: Tensor = func(*args, **kwargs)
            return given
        if func is not Tensor.new_tensor and args and isinstance(args[0], Tensor):
            dtype = {k: v for k, v in kwargs.items() if k == "dtype"}
            return self._moved(Tensor.to, (args[0], device), dtype)
        if _has_tensor(args):  # whose values are read one by one
            on_host: Tensor = func(*args, **kwargs, device="cpu")
        else:
            # On a GPU no call shows that the host makes it first, only that it is copied.
            on_host = self._assumed.made_unseen(lambda: func(*args, **kwargs, device="cpu"))
        return self._moved(Tensor.to, (on_host, device), {})

    def _deep_copy(self, tensor: Tensor, memo: dict[int, Any]) -> Tensor:
        """Copy the tensor alone: torch copies its memory, and there is none."""
        self.deep_copies[users_line()] = None
        if id(tensor) not in memo:
            memo[id(tensor)] = torch.ops.aten.clone.default(tensor)
        copied: Tensor = memo[id(tensor)]
        return copied

    def _show(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        tensor: Tensor = args[0]
        if not isinstance(tensor, FakeTensor):
            return func(*args, **kwargs)
        if func is Tensor.__format__ and tensor.dim() == 0:
            return format(tensor.item(), args[1])
        if tensor.device.type != "cpu":
            self._moved(Tensor.cpu, (tensor,), {})  # what it costs, seen by whoever watches
        if func in (Tensor.__repr__, Tensor.__format__):
            return f"tensor(..., size={tuple(tensor.shape)})"
        with torch._C.DisableTorchFunction():
            values = self._assumed.array(tensor)
        return values.tolist() if func is Tensor.tolist else values


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, Tensor)


def _gpu_among(values: tuple[Any, ...]) -> torch.device | None:
    for value in values:
        if isinstance(value, Tensor) and value.device.type == "cuda":
            return value.device
        if type(value) in (list, tuple) and (found := _gpu_among(tuple(value))):
            return found
    return None


def _read_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Read the arguments of `Tensor.to`: a device, a dtype, or a tensor that has both."""
    move = {name: value for name, value in kwargs.items() if value is not None}
    other = move.pop("other", None)
    flags = iter(("non_blocking", "copy"))
    for value in args:
        if isinstance(value, Tensor):
            other = value
        elif isinstance(value, torch.dtype):
            move["dtype"] = value
        elif isinstance(value, bool):
            move[next(flags)] = value
        elif value is not None:
            move["device"] = value
    if other is not None:
        move = {"device": other.device, "dtype": other.dtype, **move}
    return move
