"""Each step's result is read once, after the step."""

import torch
from torch import nn


def main(device: str) -> None:
    model = nn.Linear(32, 8).to(device).eval()
    answers = []
    with torch.inference_mode():
        for _ in range(40):
            answers.append(model(torch.ones(4, 32, device=device)).argmax(-1).tolist())
