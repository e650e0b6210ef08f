"""How fast this device reads and multiplies: what a decode step takes at the least.

Of reading the best of three kernels is taken: a reduction, and a matrix times a vector, by the
library and as the engine itself computes a step of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ostinato.llm.sampling_fused import can_fuse
from ostinato.measure import time_us

if TYPE_CHECKING:
    from torch import Tensor

_BYTES = 4 << 30
_ROWS = 1 << 18
_SIDE = 8192


def read_tb_s(device: torch.device) -> float:
    """Return 1e12 bytes per second; 0 on a CPU, where no floor is stated."""
    if device.type != "cuda":
        return 0.0
    numbers = torch.ones(_BYTES // 4, dtype=torch.int32, device=device)
    matrix = numbers.view(torch.bfloat16).view(_ROWS, -1)
    vector = torch.zeros(matrix.shape[1], dtype=torch.bfloat16, device=device)
    with torch.inference_mode():
        reads: list[Callable[[], object]] = [numbers.max, lambda: matrix @ vector]
        if can_fuse(device):
            reads.append(_own_product(matrix, vector))
        return max(_rate(read, device) for read in reads)


def products_tflop_s(device: torch.device) -> float:
    """Return 1e12 sums and products per second of the library, in bfloat16; 0 on a CPU."""
    if device.type != "cuda":
        return 0.0
    # Random, because zeros cost less power, and the chip then runs at a clock that no model sees.
    a, b = torch.randn(2, _SIDE, _SIDE, dtype=torch.bfloat16, device=device).unbind()
    with torch.inference_mode():
        spread = time_us(lambda: a @ b, device=device, repeats=15)
    return 2 * _SIDE**3 / spread.median_us / 1e6


def _own_product(matrix: Tensor, vector: Tensor) -> Callable[[], object]:
    # Only here: not every machine has triton.
    from ostinato.llm.kernels.few_product_add import few_product_add
    from ostinato.llm.kernels.matrix import Matrix
    from ostinato.llm.models.fused_plans import Product, few_plan

    plan = few_plan(Product(matrix.shape[1], len(matrix)))
    sums = matrix.new_zeros(1, len(matrix))
    return lambda: few_product_add(sums, vector[None], Matrix(matrix), plan=plan, is_early=False)


def _rate(read: Callable[[], object], device: torch.device) -> float:
    spread = time_us(read, device=device, repeats=15)
    return _BYTES / spread.median_us / 1e6
