"""Wrap a module: the same answers, replayed.

Run it with `python examples/01_wrap_a_module.py`. On a CPU it shows what a replay does; on a GPU it
shows how fast that is, too.
"""

import torch
from torch import nn

import ostinato

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)).to(device).eval()
g = ostinato.graphed(model)

with torch.inference_mode():
    kept = []
    for _ in range(5):
        x = torch.randn(2, 64, device=device)
        y = g(x)
        print(g.last)
        torch.testing.assert_close(y, model(x))
        kept.append((x, y))

    # Every output is the caller's for ever: later replays did not touch the earlier ones.
    for x, y in kept:
        torch.testing.assert_close(y, model(x))

print(g.report())
