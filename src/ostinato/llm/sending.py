"""Host content on its way to the device, without waiting for what is queued there."""

from __future__ import annotations

import torch
from torch import Tensor


def bring(content: Tensor, device: torch.device) -> Tensor:
    """Return a copy of host content on the device without waiting for the stream."""
    if device.type != "cuda":
        return content
    return content.pin_memory().to(device, non_blocking=True)


def send(target: Tensor, content: Tensor) -> None:
    """Copy host content to its place without waiting: a plain copy would wait for the stream."""
    if target.is_cuda:
        content = content.pin_memory()
    target.copy_(content, non_blocking=True)
