"""On which device, and by which backend, a call can be recorded."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ostinato.graphs.backends.base import Backend
from ostinato.graphs.options import BackendName
from ostinato.graphs.reasons import Reason
from ostinato.graphs.signature import Signature, TensorSpec

_BACKENDS = {"cuda": "cuda", "cpu": "tape"}
"""Device type -> backend."""


def place(
    signature: Signature, reached: Iterable[Tensor], asked: BackendName
) -> tuple[torch.device, Backend] | tuple[Reason, str]:
    """Choose device and backend, or say why there is none.

    Args:
        signature: Whose tensors say where the call works.
        reached: Tensors of the callable itself, such as parameters.
        asked: The `backend` option.
    """
    given = {spec.device for spec in signature.leaves if isinstance(spec, TensorSpec)}
    with torch._C.DisableTorchFunctionSubclass():  # a subclass's own may raise
        held = {tensor.device for tensor in reached if not _is_anywhere(tensor)}
    devices = {device for device in given | held if device.type != "meta"}
    if len(given) == 1 and len(devices) > 1 and next(iter(given)).type == "cpu":
        where = ", ".join(sorted(str(device) for device in held - given))
        return Reason.SEVERAL_DEVICES, f"the arguments lie on the cpu, the weights on {where}"
    accelerated = sorted((d for d in devices if d.type != "cpu"), key=str)
    device = next(iter(given), accelerated[0] if accelerated else torch.device("cpu"))
    if device.type not in _BACKENDS:
        return Reason.UNSUPPORTED_DEVICE, f"no backend records on {device}"
    name = _BACKENDS[device.type]
    if asked not in ("auto", name):
        return Reason.UNSUPPORTED_DEVICE, f'backend="{asked}" does not record on {device}'
    return device, backend_named(name)


def _is_anywhere(tensor: Tensor) -> bool:
    """Whether it says nothing of where a call works: a number on the host, or not made yet."""
    return tensor.device.type == "cpu" and (is_lazy(tensor) or not tensor.dim())


def backend_named(name: str) -> Backend:
    """Return the process's one backend of that name."""
    backend: Backend = import_module(f"ostinato.graphs.backends.{name}").backend()
    return backend
