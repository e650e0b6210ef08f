"""How fast this device reads memory: the floor under every decode step is its weights at this rate.

The better of two kernels is taken: a reduction, and a matrix times a vector as a decode step does
it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ostinato.measure import time_us

_BYTES = 4 << 30
_ROWS = 1 << 18


def read_tb_s(device: torch.device) -> float:
    """Return 1e12 bytes per second; 0 on a CPU, where no floor is stated."""
    if device.type != "cuda":
        return 0.0
    numbers = torch.ones(_BYTES // 4, dtype=torch.int32, device=device)
    matrix = numbers.view(torch.bfloat16).view(_ROWS, -1)
    vector = torch.zeros(matrix.shape[1], dtype=torch.bfloat16, device=device)
    with torch.inference_mode():
        return max(_rate(numbers.max, device), _rate(lambda: matrix @ vector, device))


def _rate(read: Callable[[], object], device: torch.device) -> float:
    spread = time_us(read, device=device, repeats=15)
    return _BYTES / spread.median_us / 1e6
