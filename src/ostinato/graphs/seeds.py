"""Whether a run seeds a random generator, and how to read and set states meanwhile.

A step that seeds draws the same numbers every time; its replays would draw on. A seed leaves no
aten call, and the seed of the last call leaves no other state. So generators carry a seed of ours
while a run is watched: one that carries another afterwards was seeded. On a CPU a marked generator
draws the same numbers as before, on CUDA others.

The default generators are shared by all threads, and several may watch at once. Whatever of ours
saves or restores a state does so here, so that no mark is kept in a state or lost to one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_MARK = 0x0571_2A70_5EED_1E55
"""A seed that nobody asks for."""
_SEED_BYTES = 8  # the first of a generator's state, on the CPU and on CUDA


@dataclass(slots=True)
class _Marked:
    seed: int
    watchers: int = 0


class _Marks:
    """Which generators carry the mark, and what they carried before."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._marked: dict[int, _Marked] = {}

    def put(self, generator: torch.Generator) -> None:
        with self._lock:
            marked = self._marked.get(_identity(generator))
            if marked is None:
                marked = self._marked[_identity(generator)] = _Marked(generator.initial_seed())
                _set_seed(generator, _MARK)
            marked.watchers += 1

    def take_off(self, generator: torch.Generator) -> None:
        """Put the old seed back when the last watcher leaves; what was drawn stays drawn."""
        with self._lock:
            marked = self._marked[_identity(generator)]
            marked.watchers -= 1
            if marked.watchers == 0:
                del self._marked[_identity(generator)]
                if generator.initial_seed() == _MARK:
                    _set_seed(generator, marked.seed)

    def read(self, generator: torch.Generator) -> Tensor:
        with self._lock:
            state = generator.get_state()
            marked = self._marked.get(_identity(generator))
            if marked is not None and generator.initial_seed() == _MARK:
                state = _with_seed(state, marked.seed)
            return state

    def write(self, generator: torch.Generator, state: Tensor) -> None:
        with self._lock:
            generator.set_state(state)
            marked = self._marked.get(_identity(generator))
            if marked is not None:
                marked.seed = generator.initial_seed()
                _set_seed(generator, _MARK)


_MARKS = _Marks()


class SeedWatch:
    """Notices that a generator is seeded between `begin` and `end`.

    Args:
        generators: The ones to watch; the same one may be among them twice.
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators = list({_identity(each): each for each in generators}.values())

    def begin(self) -> None:
        """Mark them."""
        for generator in self._generators:
            _MARKS.put(generator)

    @property
    def has_seen_one(self) -> bool:
        """Whether one of them has been seeded."""
        return any(generator.initial_seed() != _MARK for generator in self._generators)

    def end(self) -> None:
        """Leave them as the run would have."""
        for generator in self._generators:
            _MARKS.take_off(generator)


def state_of(generator: torch.Generator) -> Tensor:
    """Return the state of a generator, with its own seed."""
    return _MARKS.read(generator)


def set_state(generator: torch.Generator, state: Tensor) -> None:
    """Give a generator a state that `state_of` returned."""
    _MARKS.write(generator, state)


def default_generators(device: torch.device) -> list[torch.Generator]:
    """Return the default generators that a step on `device` may draw from."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    return generators


def _identity(generator: torch.Generator) -> int:
    return int(generator._cdata)  # type: ignore[attr-defined]


def _set_seed(generator: torch.Generator, seed: int) -> None:
    generator.set_state(_with_seed(generator.get_state(), seed))


def _with_seed(state: Tensor, seed: int) -> Tensor:
    state = state.clone()
    # A seed is unsigned, and int64 is what a tensor holds.
    state[:_SEED_BYTES].view(torch.int64).fill_(seed - (1 << 64) * (seed >= 1 << 63))
    return state
