"""Request lengths: read from a trace of real traffic, or drawn with its statistics.

Pure arithmetic. The file is Azure's public trace of chat requests from November 2023 (CC-BY-4.0,
Microsoft), or any CSV file with the same three columns.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.errors import UsageError

DRAWN = (
    "drawn: log-normal with the chat trace's context p50/p90/max 1020/2735/14050 "
    "and generated 129/424/1000"
)
_P90 = 1.2815515655446004  # of a standard normal
_CONTEXT, _GENERATED = "ContextTokens", "GeneratedTokens"


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        context: Tokens of the prompt.
        generated: Tokens of the answer.
    """

    context: int
    generated: int


def read_trace(path: Path) -> list[Request]:
    """Return the requests of a CSV file in order.

    Raises:
        UsageError: OST4022, the file lacks the columns or holds no request.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        try:
            found = [Request(int(row[_CONTEXT]), int(row[_GENERATED])) for row in rows]
        except (KeyError, ValueError, TypeError) as error:
            raise _unreadable(path, str(error)) from error
    if not found:
        raise _unreadable(path, "it holds no request")
    return found


def _unreadable(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is no trace of requests: {what}",
        code="OST4022",
        remedy=f"name a CSV file with the columns {_CONTEXT} and {_GENERATED}",
    )


def draw_trace(count: int, seed: int = 0) -> list[Request]:
    """Return `count` requests with the statistics that `DRAWN` states."""
    chance = random.Random(seed)
    return [
        Request(
            _log_normal(chance, p50=1020, p90=2735, most=14050),
            _log_normal(chance, p50=129, p90=424, most=1000),
        )
        for _ in range(count)
    ]


def _log_normal(chance: random.Random, *, p50: int, p90: int, most: int) -> int:
    spread = math.log(p90 / p50) / _P90
    return min(most, max(1, round(chance.lognormvariate(math.log(p50), spread))))


def fit_to_context(
    requests: Sequence[Request], columns: int, *, scale: float = 1.0
) -> tuple[list[Request], str]:
    """Return requests that a model with `columns` positions holds, and what was done to them.

    Args:
        scale: Every length is multiplied by this first.
    """
    fitted, clipped = [], 0
    for each in requests:
        context = max(1, round(each.context * scale))
        generated = max(1, min(round(each.generated * scale), columns // 2))
        room = columns - generated
        clipped += context > room
        fitted.append(Request(min(context, room), generated))
    share = clipped / len(requests) if requests else 0.0
    scaled = "" if scale == 1.0 else f"lengths x {scale:.3g}, then "
    return fitted, f"{scaled}{share:.1%} of the prompts clipped to {columns} positions"
