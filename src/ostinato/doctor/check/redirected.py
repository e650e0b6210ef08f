"""Make on the CPU what a factory asks for on a GPU, with real values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


class Redirected(TorchFunctionMode):
    """Replaces every "cuda" in a call of torch by "cpu"."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.cuda:
            return args[0]
        given = {name: _redirected(value) for name, value in (kwargs or {}).items()}
        if given.get("pin_memory"):
            given["pin_memory"] = False
        return func(*(_redirected(value) for value in args), **given)


def _redirected(value: Any) -> Any:
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return _CPU if isinstance(value, torch.device) and value.type == "cuda" else value
