"""What a watch costs: the time of a step with it and without it, measured in turns in one run.

    PYTHONPATH=src python3 benchmarks/watch_overhead.py [--out FILE] [--seconds 24] [--parts]

In each round every program runs one block of steps without a watch, one within
`ostinato.doctor.watch()` and one as `ostinato doctor run` has it, which also saves the evidence on
the way; who begins changes from round to round. A block of a round is compared with that round's
block without a watch, and the median over the rounds is the answer. The claim is at most 3 % with
the default choices.

On a GPU the time of the clock counts. On a CPU it is the time that the whole process had a CPU: the
threads of the watch are in it, and what else the machine does is not. Starting and stopping a watch
is no part of a step and is told apart. `--parts` adds a watch that does not look at the threads:
what that costs beyond none is what stands before the calls.

After each round the file is written and so is worth reading when the run is cut short.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from torch import nn

from ostinato.device import default_device, describe
from ostinato.doctor.keeper import Keeper
from ostinato.doctor.watching import Choices, Watch
from ostinato.measure import Spread, wait_for

MOST = 0.03
BLOCK_S = 0.8  # the first looks of a watch are let be dearer: they must not be all of it
PLAIN, HOOKS, WATCHED, SAVED = "plain", "hooks", "watched", "saved"
_TASKS = Path("/proc/self/task")


class Encoder(nn.Module):
    """Layers of attention and a feed-forward net; with `waits`, one read by the host in each."""

    def __init__(self, layers: int, width: int, *, waits: bool = False) -> None:
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
    """Return one step of each program, by name: of some 1, 5 and 20 ms on one core of a CPU."""

    def reading(model: nn.Module, *shape: int) -> Callable[[], object]:
        model = model.to(device).train(False)
        tokens = torch.randn(*shape, device=device)
        return lambda: model(tokens).argmax(-1).tolist()

    if device.type == "cpu":
        return {
            "one-token": reading(Encoder(4, 128), 1, 1, 128),
            "encoder-with-waits": reading(Encoder(6, 256, waits=True), 1, 24, 256),
            "encoder": reading(Encoder(6, 256), 4, 48, 256),
        }
    return {
        "one-token": reading(Encoder(6, 512), 1, 1, 512),
        "encoder-with-waits": reading(Encoder(6, 512, waits=True), 2, 32, 512),
        "encoder": reading(Encoder(6, 512), 2, 32, 512),
    }


@dataclass(frozen=True, slots=True)
class Block:
    """One block of steps, per step where it says so.

    Attributes:
        cpu_us: How long the process had a CPU, all of its threads together.
        sampling_us, saving_us: Of that, the two threads of the watch.
        start_stop_us: Starting and stopping the watch, once.
    """

    wall_us: float
    cpu_us: float
    sampling_us: float = 0.0
    saving_us: float = 0.0
    start_stop_us: float = 0.0


@dataclass(slots=True)
class Measured:
    """One program, and its blocks by how they were watched."""

    step: Callable[[], object]
    steps: int
    blocks: dict[str, list[Block]] = field(default_factory=dict)


def block(step: Callable[[], object], steps: int, device: torch.device) -> Block:
    """Time one block of steps."""
    wait_for(device)
    began, worked = perf_counter(), process_time()
    for _ in range(steps):
        step()
    wait_for(device)
    passed, had = perf_counter() - began, process_time() - worked
    return Block(passed * 1e6 / steps, had * 1e6 / steps)


def watched_block(
    how: str, step: Callable[[], object], steps: int, device: torch.device, folder: Path
) -> Block:
    """Time one block of steps within a watch."""
    began = perf_counter()
    before = threads()
    watch = Watch(choices=Choices(sample=how != HOOKS)).start()
    sampling = threads() - before
    keeper = Keeper(watch, folder / "evidence.json") if how == SAVED else None
    if keeper is not None:
        keeper.start()
    saving = threads() - before - sampling
    started = perf_counter()
    timed = block(step, steps, device)
    stopping = perf_counter()
    per_thread = [sum(map(had_us, those)) / steps for those in (sampling, saving)]
    if keeper is not None:
        keeper.finish(ending=watch.so_far().subject.ending)
    watch.stop()
    start_stop_us = (started - began + perf_counter() - stopping) * 1e6
    return Block(timed.wall_us, timed.cpu_us, *per_thread, start_stop_us)


def threads() -> set[str]:
    """Return the numbers of this process's threads, where the system tells them."""
    return set(os.listdir(_TASKS)) if _TASKS.exists() else set()


def had_us(thread: str) -> float:
    """Return how long a thread has had a CPU; 0 for one that has ended."""
    try:
        return int((_TASKS / thread / "schedstat").read_text().split()[0]) / 1e3
    except (OSError, ValueError, IndexError):
        return 0.0


def a_round(
    number: int, measured: Measured, hows: list[str], device: torch.device, folder: Path
) -> None:
    """Run one block of each kind; another kind begins in each round."""
    turn = number % len(hows)
    for how in hows[turn:] + hows[:turn]:
        if how == PLAIN:
            timed = block(measured.step, measured.steps, device)
        else:
            timed = watched_block(how, measured.step, measured.steps, device, folder)
        measured.blocks.setdefault(how, []).append(timed)


def summary(measured: Measured, by: str) -> dict[str, Any]:
    """Return what the blocks of one program come to."""
    plain = measured.blocks[PLAIN]
    found: dict[str, Any] = {"steps_per_block": measured.steps, "rounds": len(plain)}
    for how, blocks in measured.blocks.items():
        entry: dict[str, Any] = {
            "wall_us": asdict(Spread.of([each.wall_us for each in blocks])),
            "cpu_us": asdict(Spread.of([each.cpu_us for each in blocks])),
            "fastest_cpu_us": min(each.cpu_us for each in blocks),
        }
        if how != PLAIN:
            pairs = list(zip(blocks, plain, strict=False))
            ratios = [getattr(each, by) / getattr(none, by) - 1 for each, none in pairs]
            entry |= {
                "overhead": median(ratios),
                "overheads": ratios,
                "sampling_us": median(each.sampling_us for each in blocks),
                "saving_us": median(each.saving_us for each in blocks),
                "start_and_stop_us": median(each.start_stop_us for each in blocks),
            }
        found[how] = entry
    return found


def told(name: str, found: dict[str, Any], by: str) -> Iterator[str]:
    """Yield the lines that people read."""
    yield f"{name}: {found['rounds']} rounds, blocks of {found['steps_per_block']} steps"
    base = min(found[PLAIN]["fastest_cpu_us"], found[PLAIN][by]["median_us"])
    for how in (PLAIN, HOOKS, WATCHED, SAVED):
        if how not in found:
            continue
        entry = found[how]
        line = f"  {how:8s} {entry[by]['median_us']:10.1f} us a step"
        if how == PLAIN:
            yield line
            continue
        ratios = sorted(entry["overheads"])
        line += f", {entry['overhead']:+.2%} (from {ratios[0]:+.2%} to {ratios[-1]:+.2%})"
        beyond = entry["fastest_cpu_us"] - found[PLAIN]["fastest_cpu_us"]
        line += (
            f"; its threads: looking {entry['sampling_us']:.1f} us, "
            f"saving {entry['saving_us']:.1f} us; fastest blocks {beyond:+.1f} us of {base:.0f}"
        )
        yield line


@contextmanager
def as_one_thread(device: torch.device) -> Iterator[None]:
    """On a CPU let torch use one thread: several would wait for each other on a busy machine."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main() -> None:
    """Measure, print, and write what was asked for."""
    began = perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=24.0, help="for all of it")
    parser.add_argument("--parts", action="store_true", help="also without a look at the threads")
    options = parser.parse_args()
    device = default_device()
    by = "cpu_us" if device.type == "cpu" else "wall_us"
    hows = [PLAIN, HOOKS, WATCHED, SAVED] if options.parts else [PLAIN, WATCHED, SAVED]
    document: dict[str, Any] = {"machine": describe(device).to_dict(), "most": MOST, "by": by}
    with (
        torch.inference_mode(),
        as_one_thread(device),
        tempfile.TemporaryDirectory(prefix="watch-overhead-") as folder,
    ):
        everything = {}
        for name, step in programs(device).items():
            # The fastest of several: on a busy machine one alone makes blocks far too short.
            step_us = min(block(step, 10, device).wall_us for _ in range(8))
            steps = max(10, int(BLOCK_S * 1e6 / step_us))
            watched_block(SAVED, step, 20, device, Path(folder))  # what a first watch imports
            everything[name] = Measured(step, steps)
        number, longest = 0, 0.0
        while number == 0 or perf_counter() - began + longest < options.seconds:
            since = perf_counter()
            for measured in everything.values():
                a_round(number, measured, hows, device, Path(folder))
            longest = max(longest, perf_counter() - since)
            number += 1
            found = {name: summary(measured, by) for name, measured in everything.items()}
            if options.out is not None:
                text = json.dumps({**document, "programs": found}, indent=2)
                options.out.write_text(text + "\n", encoding="utf-8")
    print(f"{by} of a step; the watch may cost {MOST:.0%}")
    for name, entry in found.items():
        print("\n".join(told(name, entry, by)))
    dearest = max(entry[how]["overhead"] for entry in found.values() for how in (WATCHED, SAVED))
    print(f"the dearest is {dearest:+.2%}: {'within' if dearest <= MOST else 'beyond'} {MOST:.0%}")


if __name__ == "__main__":
    main()
