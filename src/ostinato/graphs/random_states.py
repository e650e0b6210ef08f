"""The states of Python's and numpy's random generators: read, compared and put back.

A user's subclass, or a bit generator of somebody's own, may have none or refuse to show it.
`reach.py` tries each before anything relies on it.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np

RANDOMS = (random.Random, np.random.Generator, np.random.RandomState)


def state_of(held: Any) -> Any:
    """Return the state of one of `RANDOMS`."""
    if isinstance(held, random.Random):
        return held.getstate()
    if isinstance(held, np.random.Generator):
        return copy.deepcopy(held.bit_generator.state)
    return held.get_state()


def set_state(held: Any, state: Any) -> None:
    """Give it a state that `state_of` returned."""
    if isinstance(held, random.Random):
        held.setstate(state)
    elif isinstance(held, np.random.Generator):
        held.bit_generator.state = state
    else:
        held.set_state(state)


def same_state(one: Any, other: Any) -> bool:
    """Whether two states of one generator are the same: then nothing was drawn between."""
    if isinstance(one, dict):
        return all(same_state(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple):
        return all(map(same_state, one, other))
    return bool(np.array_equal(one, other))


def try_state(held: Any) -> None:
    """Read a generator's state and put it back as it was: what raises now would raise later.

    Raises:
        Exception: Of the generator's own.
        ValueError: Two readings in a row differ.
    """
    state = state_of(held)
    if not same_state(state, state_of(held)):
        raise ValueError("its state is another each time that it is read")
    if type(held) not in RANDOMS or isinstance(held, np.random.Generator):
        set_state(held, state)  # a class of one's own may have a state that nobody can set
