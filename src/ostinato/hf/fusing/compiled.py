"""Is a part of the model compiled? Then nothing is fused.

The compiler stands back where calls are listened to one by one: it would mark the part as one never
to compile, or raise. And what is compiled is fused already.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from torch import nn


def compiled_part(model: nn.Module) -> str | None:
    """Name the first part of `model` that `torch.compile` has wrapped; None if there is none.

    Seen are modules, their methods and attributes, and functions that a forward names.
    """
    if "torch._dynamo" not in sys.modules:
        return None  # nobody can have compiled anything
    for name, module in model.named_modules():
        if any(map(_is_compiled, _callables(module))):
            return name or type(module).__name__
    return None


def _callables(module: nn.Module) -> Iterator[object]:
    yield module._compiled_call_impl  # by `module.compile()`
    yield module
    yield from vars(module).values()
    for kind in type(module).__mro__:
        if kind is nn.Module:
            break
        yield from vars(kind).values()
    forward = inspect.unwrap(type(module).forward)
    code, names = getattr(forward, "__code__", None), getattr(forward, "__globals__", {})
    for name in getattr(code, "co_names", ()):
        yield names.get(name)


def _is_compiled(value: object) -> bool:
    held = getattr(value, "__dict__", {})
    is_wrapped = "_torchdynamo_orig_callable" in held or "dynamo_ctx" in held
    return is_wrapped and not held.get("_torchdynamo_disable", False)
