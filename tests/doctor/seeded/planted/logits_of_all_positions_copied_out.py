"""All logits are copied to the host where one row would do."""

import torch
from torch import nn

EXPECT = "OST104"
NEEDS = "gpu"
COMPANIONS = ("OST101",)


def main(device: str) -> None:
    model = nn.Linear(256, 32000).to(device).eval()
    with torch.inference_mode():
        for _ in range(60):
            logits = model(torch.ones(512, 256, device=device)).cpu()  # <- here
            logits[-1].argmax()
