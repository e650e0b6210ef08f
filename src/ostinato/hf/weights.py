"""New weights into old tensors: what a recording reads changes, where it reads does not."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ostinato.errors import UsageError
from ostinato.graphs.weights import copy_into


def update_in_place(model: nn.Module, state_dict: Mapping[str, Tensor]) -> None:
    """Copy `state_dict` into the parameters and buffers of `model`; some of them is enough.

    Raises:
        UsageError: OST3003, it is empty, a name is unknown, or a value does not fit; nothing was
            changed.
        WrongTypeError: OST3003, it is no state dict, or a value is no tensor.
    """
    devices = {tensor.device for tensor in model.parameters() if tensor.is_cuda}
    for device in devices:
        torch.cuda.synchronize(device)  # replays in flight on other streams still read the old ones
    try:
        copy_into(model, state_dict, takes_some=True)
    except UsageError as error:
        raise type(error)(
            error.args[0],
            code="OST3003",
            remedy="pass the state_dict of a model of the same config, or some of its entries",
        ) from None
    for device in devices:
        torch.cuda.current_stream(device).synchronize()  # before replays on other streams
