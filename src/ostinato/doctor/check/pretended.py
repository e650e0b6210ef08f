"""Tensors without contents on a GPU that is not there.

A fake tensor has a shape, a type and a device, and no values. torch can make one that says "cuda"
on any machine, but a build without CUDA refuses most of what is done with it: before a call reaches
Python, C++ asks for the guard of the tensor's device, which such a build does not have. So C++ is
told that these tensors lie on the CPU, and Python that they lie where they pretend to. Their
dispatch keys stay those of CUDA, so that autocast follows CUDA's own lists.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ostinato.doctor.check.line import users_line
from ostinato.doctor.check.other_threads import UsedElsewhere, is_use

_DEVICE = torch.ops.prim.device.default
_CPU = torch.device("cpu")
_META = torch.device("meta")


class PretendedMode(FakeTensorMode):
    """Answers calls on fake tensors, and tells C++ that they lie on the CPU.

    Attributes:
        elsewhere: Calls that threads made which are not the one this mode was made in.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.elsewhere: list[UsedElsewhere] = []
        self._thread = get_ident()
        self._twins: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def avoid_device_init(self) -> bool:
        """Never start a device: none is used, even where there is one."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return _META if args[0].fake_mode.in_kernel_invocation else _CPU
        if get_ident() != self._thread and is_use(func):
            self.elsewhere.append(UsedElsewhere(func, users_line()))
        return super().__torch_dispatch__(func, types, args, kwargs or {})

    def twin(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Return the tensor that stands on `device` for one made elsewhere, always the same.

        Views of one memory stay views of one memory.
        """
        key = (id(tensor), device)
        if key not in self._twins:
            with torch._C.DisableTorchFunction():
                fake = tensor if isinstance(tensor, FakeTensor) else self.from_tensor(tensor)
                self._twins[key] = (tensor, self._moved(fake, device))
        return self._twins[key][1]

    def _moved(self, fake: Tensor, device: torch.device) -> Tensor:
        from torch._subclasses.fake_tensor import in_kernel_invocation_manager

        with in_kernel_invocation_manager(self):
            alias = fake.detach()
        twin: Tensor = FakeTensor(self, alias, device)
        return twin.requires_grad_(fake.requires_grad) if fake.is_leaf else twin
