"""Read the reason: a `.item()` keeps a step from being recorded. Find the line, and fix it."""

import torch

import ostinato
from ostinato import explain


@ostinato.graphed(admit_after=1)
def step(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.any().item():
        x = x * 2
    return x + 1


x, mask = torch.arange(4.0), torch.tensor([False, True, False, False])
before = step(x, mask)
print("before:", step.last)

# `ostinato explain host-sync` says: keep the decision on the device.
page = explain.find(str(step.last.reason))
print("page:  ", page.title)


@ostinato.graphed(admit_after=1)
def fixed(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask.any(), x * 2, x) + 1


for _ in range(2):
    torch.testing.assert_close(fixed(x, mask), before)
    print("after: ", fixed.last)
