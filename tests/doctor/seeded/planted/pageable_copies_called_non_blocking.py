"""A copy that is called non-blocking blocks: its memory is not pinned."""

import torch
from torch import nn

from ostinato.doctor import step

EXPECT = "OST101"
NEEDS = "gpu"
COMPANIONS = ("OST102", "OST104", "OST201")


def main(device: str) -> None:
    model = nn.Linear(512, 512).to(device).eval()
    batch = torch.ones(64, 512)
    with torch.inference_mode():
        for _ in range(60):
            with step():
                y = model(batch.to(device, non_blocking=True))  # <- here
        y.cpu()
