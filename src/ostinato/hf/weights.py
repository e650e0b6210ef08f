"""New weights into old tensors: what a recording reads changes, where it reads does not."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ostinato.errors import UsageError


def update_in_place(model: nn.Module, state_dict: Mapping[str, Tensor]) -> None:
    """Copy `state_dict` into the parameters and buffers of `model`; some of them is enough.

    Raises:
        UsageError: OST3003, a name is unknown or a shape differs; nothing was changed.
    """
    held = {**dict(model.named_buffers()), **dict(model.named_parameters(remove_duplicate=False))}
    for name, tensor in state_dict.items():
        if name not in held:
            problem = f"the model has no weight {name!r}"
        elif held[name].shape != tensor.shape:
            problem = f"{name} is {tuple(tensor.shape)}, the model's is {tuple(held[name].shape)}"
        else:
            continue
        raise UsageError(
            problem, code="OST3003", remedy="pass the state_dict of a model of the same config"
        )
    device = next((tensor.device for tensor in held.values()), None)
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)  # replays in flight on other streams still read the old ones
    with torch.no_grad():
        for name, tensor in state_dict.items():
            held[name].copy_(tensor)
