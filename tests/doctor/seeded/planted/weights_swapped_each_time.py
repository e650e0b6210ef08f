"""New weights are assigned and not copied, so every recording is lost."""

import torch
from torch import nn

from ostinato import graphed

EXPECT = "OST204"


def main(device: str) -> None:
    model = nn.Linear(16, 16).to(device).eval()
    step = graphed(model, admit_after=1)
    x = torch.ones(2, 16, device=device)
    with torch.inference_mode(False), torch.no_grad():
        for _ in range(12):
            model.load_state_dict(
                {k: v.clone() for k, v in model.state_dict().items()}, assign=True
            )
            for _ in range(3):
                step(x)
