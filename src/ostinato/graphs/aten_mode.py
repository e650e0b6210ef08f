"""See the aten calls of a block of code, one by one and down to the ones that kernels answer."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.graphs.aten_calls import followed, is_recipe, is_wrapper
from ostinato.graphs.interrupts import hand_on_signals

_DEVICE_OF = torch.ops.prim.device.default


class AtenMode(TorchDispatchMode):
    """A dispatch mode that hands each aten call to `on_call`, and anything else to `on_opaque`."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch wraps the mode such that its first call imports the whole compiler: 2.8 s.
        return False

    def on_call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call and return its result."""
        raise NotImplementedError

    def on_opaque(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call whose inside is no aten call and return its result."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        try:
            hand_on_signals()
            return self._dispatched(func, types, args, kwargs or {})
        finally:
            # The last thing: what comes from here on is handled in the callable's own code.
            hand_on_signals()

    def _dispatched(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not isinstance(func, OpOverload):
            return self.on_opaque(func, args, kwargs)
        if func is _DEVICE_OF:
            return func(*args)  # C++ asks a fake tensor where it lies
        if is_wrapper(types):
            return NotImplemented  # the tensor's own dispatch comes first, then its inner calls
        if is_recipe(func):
            with self:
                return followed(func, args, kwargs)
        with torch._C.DisableTorchFunction():
            return self.on_call(func, args, kwargs)
