"""Requests with the moments at which they came: a window of a real trace, or drawn like one. Pure.

The file is Azure's public trace of chat requests from November 2023 (CC-BY-4.0, Microsoft), or any
CSV file with the same three columns.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ostinato.bench.trace import DRAWN, draw_trace
from ostinato.errors import UsageError

WINDOW_S = 300.0
_PER_S = 5.4  # of the chat trace, on average


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    Attributes:
        at_s: When it comes, from the window's beginning.
        context: Tokens of the prompt.
        generated: Tokens of the answer.
    """

    at_s: float
    context: int
    generated: int


def read_window(file: Path, seconds: float = WINDOW_S) -> list[Arrival]:
    """Return the requests of the first `seconds` of a trace.

    Raises:
        UsageError: OST4022, the file lacks the columns or holds no request.
    """
    with file.open(newline="", encoding="utf-8-sig") as open_file:
        rows = csv.DictReader(open_file)
        try:
            found = [
                (
                    _moment(row["TIMESTAMP"]),
                    int(row["ContextTokens"]),
                    int(row["GeneratedTokens"]),
                )
                for row in rows
            ]
        except (KeyError, ValueError, TypeError) as error:
            raise _unreadable(file, str(error)) from error
    if not found:
        raise _unreadable(file, "it holds no request")
    began = min(moment for moment, *_ in found)
    window = [Arrival(moment - began, *rest) for moment, *rest in found]
    return sorted((one for one in window if one.at_s < seconds), key=lambda one: one.at_s)


def _moment(text: str) -> float:
    # Seven digits of a second's fraction: one more than Python reads.
    whole, _, fraction = text.partition(".")
    return datetime.fromisoformat(whole).timestamp() + float(f"0.{fraction or 0}")


def draw_window(seconds: float = WINDOW_S, seed: int = 0) -> tuple[list[Arrival], str]:
    """Return requests with the chat trace's lengths that come at random, and words on them."""
    chance = random.Random(seed)
    moments: list[float] = []
    now = chance.expovariate(_PER_S)
    while now < seconds:
        moments.append(now)
        now += chance.expovariate(_PER_S)
    lengths = draw_trace(len(moments), seed)
    drawn = [
        Arrival(moment, one.context, one.generated)
        for moment, one in zip(moments, lengths, strict=True)
    ]
    return drawn, f"{DRAWN}; arrivals at random, {_PER_S} a second"


def fitted(arrivals: Sequence[Arrival], most: int, scale: float = 1.0) -> list[Arrival]:
    """Return the requests, lengths times `scale`, cut to what a model of `most` tokens takes."""
    found = []
    for one in arrivals:
        generated = max(1, min(round(one.generated * scale), most // 2))
        context = max(1, min(round(one.context * scale), most - generated))
        found.append(Arrival(one.at_s, context, generated))
    return found


def _unreadable(file: Path, what: str) -> UsageError:
    return UsageError(
        f"{file} is no trace of arrivals: {what}",
        code="OST4022",
        remedy="name a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens",
    )
