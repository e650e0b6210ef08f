"""What came to a service in some minutes: read from a trace, or drawn with the statistics of one.

Chat comes steadily: a Poisson process describes it. Completions of code come from few clients who
send dozens at once and then nothing for minutes: the times between two requests are spread 13 times
as wide as their mean. Pure.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from ostinato.bench.offline.arrivals import (
    WINDOW_S,
    Arrival,
    draw_window,
    fitted,
    read_window,
)
from ostinato.errors import UsageError

CHAT, CODE = "chat", "code"
# Of Azure's trace of code requests, November 2023: most follow soon, and one in 156 after a pause.
# Two exponential distributions with these means have the trace's rate and its spread.
_SOON_S, _PAUSE_S, _PAUSES = 0.1, 45.6, 0.0064
_P90 = 1.2815515655446004  # of a standard normal


def window(named: str, seconds: float, most: int) -> list[Arrival]:
    """Return the requests of the first `seconds`, at most five minutes.

    Args:
        named: "chat" or "code", drawn; else a CSV file.
        most: Tokens of the longest request; longer ones are cut.

    Raises:
        UsageError: OST4022, the file is not there, lacks the columns or holds no request.
    """
    seconds = min(seconds, WINDOW_S)
    if named == CHAT:
        return fitted(draw_window(seconds)[0], most)
    if named == CODE:
        return fitted(draw_bursts(seconds), most)
    if not Path(named).is_file():
        raise UsageError(
            f"there is no file {named}",
            code="OST4022",
            remedy="name a CSV file that exists, or chat or code for requests that are drawn",
        )
    return fitted(read_window(Path(named), seconds), most)


def draw_bursts(seconds: float, seed: int = 0) -> list[Arrival]:
    """Return requests with the code trace's lengths that come in bursts, as in it."""
    chance = random.Random(seed)
    found = []
    now = chance.expovariate(1 / _SOON_S)
    while now < seconds:
        context = _log_normal(chance, p50=1469, p90=5194, most=7437)
        generated = _log_normal(chance, p50=13, p90=55, most=1899)
        found.append(Arrival(now, context, generated))
        mean_s = _PAUSE_S if chance.random() < _PAUSES else _SOON_S
        now += chance.expovariate(1 / mean_s)
    return found


def _log_normal(chance: random.Random, *, p50: int, p90: int, most: int) -> int:
    spread = math.log(p90 / p50) / _P90
    return min(most, max(1, round(chance.lognormvariate(math.log(p50), spread))))
