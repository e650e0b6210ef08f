"""Go on after a read that a GPU would wait for, with a value that is assumed.

A check is to name every line that stands in the way, not the first alone. So a read is answered:
a number is one, a condition holds (or, on a second way through, does not), a mask keeps all its
elements. A loop `while condition` must come to an end, so that a condition which is asked again on
the same line is answered the other way round.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import _disable_current_modes

from ostinato.doctor.check.line import Line, users_line
from ostinato.doctor.check.pretended import PretendedMode
from ostinato.graphs.aten_calls import base_name, tensors_in
from ostinato.graphs.aten_mode import AtenMode

_MOST_READS_OF_A_LINE = 64
_LARGEST_HOST_TENSOR = 1 << 20
"""Elements of a tensor of the host that is computed for real, so that its values are known."""
_LARGEST_SAMPLE = 1 << 24
_MISMATCHES = ("Expected all tensors to be on the same device", "FakeTensor Device Propagation")
"""What torch says of tensors that lie apart, from 2.13 on and before."""
_CPU = torch.device("cpu")


class NoEnd(Exception):
    """The run does not come to its end: a line reads, or makes calls of torch, again and again."""

    def __init__(
        self, line: Line | None, why: str = "a loop that depends on values read from tensors"
    ) -> None:
        super().__init__(f"{why} does not end")
        self.line = line


class Assumed(AtenMode):
    """Answers the calls of a run on fake tensors; the lowest of the modes but the fake one.

    Args:
        mode: Makes the fake tensors.
        condition: Whether a condition holds when it is asked first.
        is_lenient: False: raise instead of assuming anything.

    Attributes:
        lines: Where a value was assumed, and how often.
        conditions: Lines that asked whether something holds.
        numbers: Lines that were given other values: one way that Python goes with them was seen.
        mismatches: Where tensors of several devices met, with what torch says.
    """

    def __init__(
        self, mode: PretendedMode, condition: bool = True, *, is_lenient: bool = True
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: Counter[Line | None] = Counter()
        self.mismatches: list[tuple[str, Line | None, str]] = []
        self._mode = mode
        self._condition = condition
        self._is_lenient = is_lenient
        self.conditions: Counter[Line | None] = Counter()
        self.numbers: Counter[Line | None] = Counter()
        self._made: dict[int, weakref.ref[Tensor]] = {}

    def made_here(self, tensor: Tensor) -> bool:
        """Whether a tensor of the host was made by the run itself."""
        made = self._made.get(id(tensor))
        return made is not None and made() is tensor

    def made_unseen(self, make: Callable[[], Tensor]) -> Tensor:
        """Make a real tensor of the host without anybody seeing how."""
        with _disable_current_modes():
            tensor = make()
        self._made[id(tensor)] = weakref.ref(tensor)
        return tensor

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call, or assume its answer."""
        result = self._call(func, args, kwargs)
        for tensor in tensors_in(result):
            self._made[id(tensor)] = weakref.ref(tensor)
        return result

    def _call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if base_name(func) in ("_pin_memory", "pin_memory"):
            return args[0]  # it stays where it is: nothing can be pinned without a GPU
        if self._is_of_the_host(args, kwargs):
            return self._for_real(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            if not self._is_lenient:
                raise
            if isinstance(error, DynamicOutputShapeException):
                self._note()
                return self._sample(func, args, kwargs)
            return self._answer(func, args)
        except RuntimeError as error:
            if not any(words in str(error) for words in _MISMATCHES):
                raise
            self.mismatches.append((str(func), users_line(), str(error).partition("\n")[0]))
            return func(*self._together(args), **self._together(kwargs))

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """Return assumed values for a whole tensor."""
        if not self._is_lenient:
            raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
        self.numbers[self._note()] += 1
        shape = tuple(int(size) for size in tensor.shape)
        if math.prod(shape) > _LARGEST_SAMPLE:
            raise MemoryError(f"{math.prod(shape)} values would have to be assumed")
        with _disable_current_modes():
            return np.asarray(torch.ones(shape, dtype=_numpys(tensor.dtype)).numpy())

    def _is_of_the_host(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        device = kwargs.get("device")
        if device is not None and device.type != "cpu":
            return False
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        if any(isinstance(tensor, FakeTensor) for tensor in taken):
            return False
        sizes = args[0] if not taken and args else ()
        numbers = sizes if isinstance(sizes, list | tuple) else (sizes,)
        made = math.prod(n for n in numbers if isinstance(n, int | float))
        return made <= _LARGEST_HOST_TENSOR and all(
            tensor.device.type == "cpu" and tensor.numel() <= _LARGEST_HOST_TENSOR
            for tensor in taken
        )

    def _for_real(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        with _disable_current_modes():
            return func(*args, **kwargs)

    def _note(self) -> Line | None:
        line = users_line()
        self.lines[line] += 1
        if self.lines[line] > _MOST_READS_OF_A_LINE:
            raise NoEnd(line)
        return line

    def _answer(self, func: OpOverload, args: Sequence[Any]) -> Any:
        line = self._note()
        dtype = args[0].dtype
        if base_name(func) in ("equal", "allclose", "is_nonzero") or dtype is torch.bool:
            self.conditions[line] += 1
            return self._condition == (self.conditions[line] == 1)
        self.numbers[line] += 1
        if dtype.is_complex:
            return 1 + 0j
        return 1.0 if dtype.is_floating_point else 1

    def _sample(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """Make the call on ones, which shows one of the shapes that its result may have."""
        taken = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        if sum(tensor.numel() for tensor in taken) > _LARGEST_SAMPLE:
            raise MemoryError(f"{func} would have to be tried on too much memory")
        device = next((t.device for t in taken if t.device.type != "cpu"), _CPU)
        with _disable_current_modes():
            made = func(*_ones(args), **_ones(kwargs))
        return _each(made, lambda tensor: self._mode.twin(tensor, device))

    def _together(self, value: Any) -> Any:
        """Take every tensor to the GPU, as the author must have meant."""
        device = torch.device("cuda", 0)
        return _each(value, lambda t: t if t.device == device else self._mode.twin(t, device))


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_each(item, change) for item in value)
    if isinstance(value, dict):
        return {name: _each(item, change) for name, item in value.items()}
    return value


def _ones(value: Any) -> Any:
    return _each(value, lambda t: torch.ones(tuple(t.shape), dtype=t.dtype, device="cpu"))


def _numpys(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype is torch.bfloat16 else dtype
