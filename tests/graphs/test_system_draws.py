"""Random bytes of the operating system, under whatever name, are in no recording."""

from __future__ import annotations

import os
import random
import secrets
import ssl
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from os import urandom as bytes_of
from random import Random as Dice
from secrets import randbelow as below
from typing import Any
from uuid import uuid4 as fresh

import numpy as np
import pytest
import torch
from numpy.random import default_rng as numbers_of

from ostinato.graphs import Outcome, Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")

first_of_two = partial(secrets.choice, range(2))
pick = secrets.choice


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.inference_mode():
        yield


# Each gives the same number every time, so that nothing but the draw itself can be noticed.
DRAWS: dict[str, Callable[[], Any]] = {
    "choice": lambda: secrets.choice((1, 1)),
    "randbelow": lambda: secrets.randbelow(2) * 0,
    "randbits": lambda: secrets.randbits(3) * 0,
    "token_urlsafe": lambda: len(secrets.token_urlsafe(4)),
    "a bound choice": lambda: pick((1, 1)),
    "a partial": lambda: first_of_two() * 0,
    "randbelow by another name": lambda: below(2) * 0,
    "uuid4": lambda: uuid.uuid4().version,
    "uuid4 by another name": lambda: fresh().version,
    "urandom by another name": lambda: len(bytes_of(2)),
    "SystemRandom": lambda: random.SystemRandom().randrange(2) * 0,
    "ssl": lambda: len(ssl.RAND_bytes(2)),
    "a generator without a seed": lambda: random.Random().random() * 0,
    "the same by another name": lambda: Dice().random() * 0,
    "numpy's without a seed": lambda: np.random.default_rng().random() * 0,
    "numpy's by another name": lambda: numbers_of().random() * 0,
    "numpy's old one": lambda: np.random.RandomState().rand() * 0,
}
if hasattr(os, "getrandom"):
    DRAWS["getrandom"] = lambda: len(os.getrandom(2))


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_draw_from_the_system_is_refused(draw: Callable[[], Any]) -> None:
    runner = graphed(lambda x: x * draw(), admit_after=1)
    for _ in range(3):
        runner(torch.ones(1))
    assert runner.last is not None
    assert runner.last.reason is Reason.PYTHON_SIDE_EFFECT
    assert "operating system" in runner.last.detail


SEEDED: dict[str, Callable[[], Any]] = {
    "python's": lambda: random.Random(3).random(),
    "numpy's": lambda: np.random.default_rng(3).random(),
}


@pytest.mark.parametrize("draw", SEEDED.values(), ids=SEEDED)
def test_a_generator_with_a_seed_draws_the_same_each_time(draw: Callable[[], Any]) -> None:
    runner = graphed(lambda x: x * draw(), admit_after=1)
    results = {float(runner(torch.ones(1))) for _ in range(3)}
    assert len(results) == 1
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
