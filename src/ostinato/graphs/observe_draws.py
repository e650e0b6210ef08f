"""Whether random numbers were drawn, and whether a generator was set to another state meanwhile.

A run that puts a generator back, as `fork_rng` does, draws the same numbers every time and leaves
the generator as it was. A replay would draw on.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

import torch

from ostinato.graphs.libraries import is_library
from ostinato.graphs.seeds import default_generators


def generator_states(device: torch.device) -> list[bytes]:
    """Return the states of the default generators that a step on `device` may draw from."""
    return [bytes(generator.get_state().numpy()) for generator in default_generators(device)]


SEEDED = "the step seeds a random generator, and a replay would draw on instead"
STATE_IS_ASKED = (
    "the state of a random generator is read or set, and a replay would draw on instead"
)
OF_STATES = frozenset({SEEDED, STATE_IS_ASKED})
SEEDING = frozenset({"manual_seed", "seed"})
OF_GENERATORS = SEEDING | {
    "get_state", "set_state", "clone_state", "graphsafe_get_state", "graphsafe_set_state",
    "initial_seed", "get_offset", "set_offset",
}  # fmt: skip
"""Methods of a generator that tell its state, or change it otherwise than by a draw."""

# What user code calls instead; whatever else of torch asks for a state has reasons of its own.
_DOORS = frozenset(
    {"torch.random", "torch.cuda", "torch.cuda.random", "torch.xpu", "torch.xpu.random",
     "torch.mps", "contextlib"}
)  # fmt: skip


def is_asked_by_user(frame: FrameType | None) -> bool:
    """Whether the user's code calls a method of a generator, directly or through torch's own."""
    while frame is not None and frame.f_globals.get("__name__") in _DOORS:
        frame = frame.f_back
    return frame is not None and not is_library(frame.f_globals.get("__name__"))


class TurnedBack:
    """Notices that a generator is put back into a state that it was in before some draw.

    Other threads may draw from the same generators meanwhile: that leads to no earlier state.

    Args:
        generators: The ones to watch.
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators = generators
        self._latest = self._states()
        self._left: set[tuple[int, bytes]] = set()

    def _states(self) -> list[bytes]:
        return [bytes(generator.get_state().numpy()) for generator in self._generators]

    def look(self) -> bool:
        """Compare with the last look; ask before and after each draw, and at the end."""
        now = self._states()
        moved = [i for i, then in enumerate(self._latest) if now[i] != then]
        was_turned = any((i, now[i]) in self._left for i in moved)
        self._left.update((i, self._latest[i]) for i in moved)
        self._latest = now
        return was_turned


def is_default(generator: torch.Generator) -> bool:
    """Whether `generator` is one that `torch.manual_seed` seeds."""
    defaults = (torch.default_generator, *torch.cuda.default_generators)
    return any(is_same(generator, default) for default in defaults)


def is_same(one: torch.Generator, other: torch.Generator) -> bool:
    """Whether two objects are one generator: a dispatch mode may be given a wrapper of its own."""
    return bool(one._cdata == other._cdata)  # type: ignore[attr-defined]
