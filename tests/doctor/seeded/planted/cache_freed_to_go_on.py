"""The allowed memory is full, and the allocator has to free its cache to go on."""

import torch

from ostinato.doctor import step

EXPECT = "OST603"
NEEDS = "gpu"


def main(device: str) -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 30)) / total)
    try:
        for size in range(20):
            with step():
                torch.empty((500 + 20 * size) << 20, dtype=torch.uint8, device=device).fill_(1)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
