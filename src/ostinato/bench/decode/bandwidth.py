"""How fast this device reads memory: the floor under every decode step is its weights at this rate.

The best of three kernels is taken: a reduction, and a matrix times a vector, by the library and as
the engine itself computes a step of one row.
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
