"""New weights are copied into the old memory."""

import torch
from torch import nn

from ostinato import graphed


def main(device: str) -> None:
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)]).to(device).eval()
    step = graphed(model, admit_after=1)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for _ in range(30):
            step.update_weights(state)
            for _ in range(4):
                step(torch.ones(2, 16, device=device))
