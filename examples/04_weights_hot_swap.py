"""Weights: swap them in place and keep every recording, or replace them and be noticed."""

import copy

import torch
from torch import nn

import ostinato

model = nn.Linear(8, 2).eval()
tuned = copy.deepcopy(model)
with torch.no_grad():
    tuned.weight.add_(1.0)

g = ostinato.graphed(model, admit_after=1)
x = torch.randn(3, 8)

with torch.inference_mode():
    g(x)
    g(x)
    print("at first:        ", g.last)

    # In place: the recording reads the same addresses, so nothing is recorded again.
    g.update_weights(tuned.state_dict())
    torch.testing.assert_close(g(x), tuned(x))
    print("swapped in place:", g.last)
    assert g.report().recordings == 1

    # Replaced: the parameters are other tensors now. The old recording is not used again.
    model.load_state_dict(copy.deepcopy(tuned).state_dict(), assign=True)
    with torch.no_grad():
        model.weight.mul_(2.0)
    torch.testing.assert_close(g(x), model(x))
    print("replaced:        ", g.last)
    torch.testing.assert_close(g(x), model(x))
    print("afterwards:      ", g.last)
