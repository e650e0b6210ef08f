"""Try a call that fills given memory before a recording relies on it.

A few kernels use the tensor they are given as scratch and resize it on the way: `mse_loss` with a
mean makes its one number as large as its input first. In an arena that would write over the
neighbours. So each kind of call is made once, on zeros of the same shapes, into memory that cannot
grow.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ostinato.graphs.backends.tape_arena import Arena
from ostinato.graphs.backends.tape_doors import fastest
from ostinato.graphs.backends.tape_program import Call, Program, Ref, Value
from ostinato.graphs.backends.tape_variants import out_variant


class Trials:
    """Remembers how each kind of call fared; one for the planning of one program."""

    __slots__ = ("_known", "_program")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[str, bool] = {}

    def fills_exactly(self, call: Call) -> bool:
        """Whether the `out` variant of `call` leaves the size of the given memory alone."""
        kind = str((call.func, self._described((call.args, call.kwargs)), len(call.outs)))
        if kind not in self._known:
            with torch.inference_mode(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of the resize that is looked for
                self._known[kind] = self._try(call)
        return self._known[kind]

    def _try(self, call: Call) -> bool:
        variant = out_variant(call.func)
        assert variant is not None
        outs = [self._program.values[value] for _, value in call.outs]
        given = [
            value.over(Arena(max(value.end_bytes, 1), {0: 0}).storage(0, value.end_bytes))
            for value in outs
        ]
        kwargs = variant.kwargs({name: self._zeros(arg) for name, arg in call.kwargs.items()})
        kwargs.update(zip(variant.outs, given, strict=True))
        invocation = fastest(variant.func, self._zeros(call.args), kwargs)
        try:
            invocation.door(*invocation.args, **invocation.kwargs)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False  # zeros may also be no valid input; then the plain call is made
        return all(
            tensor.shape == value.shape and tensor.stride() == value.stride
            for tensor, value in zip(given, outs, strict=True)
        )

    def _zeros(self, arg: Any) -> Any:
        if isinstance(arg, Ref):
            return _zeros_like(self._program.values[arg.value])
        if isinstance(arg, list | tuple):
            return type(arg)(self._zeros(item) for item in arg)
        return arg

    def _described(self, arg: Any) -> Any:
        if isinstance(arg, Ref):
            value = self._program.values[arg.value]
            return value.dtype, value.shape, value.stride, value.is_conj, value.is_neg
        if isinstance(arg, list | tuple):
            return tuple(self._described(item) for item in arg)
        if isinstance(arg, dict):
            return {name: self._described(item) for name, item in arg.items()}
        return arg


def _zeros_like(value: Value) -> Tensor:
    zeros = torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="cpu").zero_()
    return torch._conj(zeros) if value.is_conj else zeros
