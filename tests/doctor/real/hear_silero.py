"""silero-vad over ten minutes of sound, one window at a time, as its own readme does it."""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
RATE, WINDOW = 16_000, 512

folder = Path(next(iter(find_spec("silero_vad").submodule_search_locations))) / "data"
model = torch.jit.load(folder / "silero_vad.jit").eval()
torch.manual_seed(0)
sound = torch.randn(SECONDS * RATE) * torch.linspace(0, 0.3, SECONDS * RATE)

speech = []
with torch.inference_mode():
    model.reset_states()
    for start in range(0, len(sound) - WINDOW, WINDOW):
        speech.append(model(sound[start : start + WINDOW], RATE).item())
print(f"{len(speech)} windows, {sum(p > 0.5 for p in speech)} with speech")  # noqa: T201
