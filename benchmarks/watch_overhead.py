"""What `ostinato.doctor.watch` costs: the time of a step with it and without it, in turns.

    PYTHONPATH=src python3 benchmarks/watch_overhead.py [--out FILE] [--seconds 20]

Three programs: an encoder with its result read once a step, the same with a wait in every layer (so
that collectors have work), and decoding one token at a time. Blocks of steps take turns, watched
and not watched, and each pair gives one ratio; starting and stopping the watch is not part of a
step and is told apart. The claim is at most 3 % with the default choices."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import nn

from ostinato.device import default_device, describe
from ostinato.doctor.watching import Watch
from ostinato.measure import Spread, wait_for

MOST = 0.03
BLOCK_US = 800e3  # the first looks of a watch are let be dearer: they must not be all of it


class Encoder(nn.Module):
    """Layers of attention and a feed-forward net; with `waits`, one read by the host in each."""

    def __init__(self, layers: int, width: int, *, waits: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True) for _ in range(layers)
        )
        self.waits = waits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the encoded tokens."""
        for layer in self.layers:
            x = layer(x)
            if self.waits and float(x[0, 0, 0]) > 1e9:
                x = x / 2
        return x


def programs(device: torch.device) -> dict[str, Callable[[], object]]:
    """Return one step of each program, by name."""
    width = 256 if device.type == "cpu" else 512
    quiet = Encoder(6, width, waits=False).to(device).train(False)
    waiting = Encoder(6, width, waits=True).to(device).train(False)
    tokens = torch.randn(2, 32, width, device=device)
    one = torch.randn(1, 1, width, device=device)
    return {
        "encoder": lambda: quiet(tokens).argmax(-1).tolist(),
        "encoder-with-waits": lambda: waiting(tokens).argmax(-1).tolist(),
        "one-token": lambda: quiet(one),
    }


def block_us(step: Callable[[], object], steps: int, device: torch.device) -> float:
    """Return the time of one step of a block."""
    wait_for(device)
    began = perf_counter()
    for _ in range(steps):
        step()
    wait_for(device)
    return (perf_counter() - began) * 1e6 / steps


def compare(step: Callable[[], object], device: torch.device, seconds: float) -> dict[str, object]:
    """Time blocks with and without a watch in turns for so many seconds."""
    for _ in range(20):
        step()
    steps = max(10, int(BLOCK_US / block_us(step, 20, device)))
    plain: list[float] = []
    watched: list[float] = []
    start_stop_us: list[float] = []
    until = perf_counter() + seconds
    while perf_counter() < until or len(plain) < 3:
        before = block_us(step, steps, device)
        began = perf_counter()
        watch = Watch().start()
        started = perf_counter()
        watched.append(block_us(step, steps, device))
        stopping = perf_counter()
        watch.stop()
        start_stop_us.append((started - began + perf_counter() - stopping) * 1e6)
        after = block_us(step, steps, device)
        plain.append((before + after) / 2)
    ratios = [w / p - 1 for w, p in zip(watched, plain, strict=True)]
    return {
        "steps_per_block": steps,
        "plain_us": asdict(Spread.of(plain)),
        "watched_us": asdict(Spread.of(watched)),
        "overhead": median(ratios),
        "overhead_spread": asdict(Spread.of(ratios))["iqr_us"],
        "start_and_stop_us": median(start_stop_us),
    }


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0, help="for all three together")
    options = parser.parse_args()
    device = default_device()
    results: dict[str, object] = {}
    with torch.inference_mode():
        for name, step in programs(device).items():
            found = compare(step, device, options.seconds / 3)
            results[name] = found
            print(f"{name}: {found['overhead']:+.2%} of {found['plain_us']}")
    document = {"machine": describe(device).to_dict(), "most": MOST, "programs": results}
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
