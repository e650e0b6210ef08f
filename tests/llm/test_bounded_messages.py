"""A refusal names the value it met, and stays short however long that is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from llm.small_engine import engine, greedy
from ostinato.errors import OstinatoError
from ostinato.llm.config import EngineConfig
from ostinato.llm.limits import Limits
from ostinato.llm.refusals import shown, taken_name
from ostinato.llm.request import Request, SamplingParams

MOST = 1000  # letters of a whole error: what was seen, what to do, where to read more


class Long:
    def __repr__(self) -> str:
        return "L" * 100_000


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


LONG_NAME = type("N" * 50_000, (), {"__repr__": Mute.__repr__})
HUGE: dict[str, Any] = {
    "text": "x" * 100_000,
    "texts": ["y" * 1000] * 100,
    "parts": ["a" * 10_000, 1],
    "half": ("a", "\ud800" * 5000),
    "mapping": {"k" * 100_000: 1},
    "number": 10**5000,
    "negative": -(10**5000),
    "numbers": [10**5000],
    "key": {10**5000: 1},
    "value": {1: 10**5000},
    "bytes": b"z" * 100_000,
    "set": {"s" * 50_000},
    "long": Long(),
    "mute": Mute(),
    "named": LONG_NAME(),
    "choices": {"choices": ["c" * 100_000]},
    "type": {"type": "t" * 100_000},
    "keys": {"q" * 100_000: 1, "regex": "a"},
}
OPTIONS_OF = [
    *((SamplingParams, option.name) for option in fields(SamplingParams)),
    *((EngineConfig, option.name) for option in fields(EngineConfig)),
    *((Request, option.name) for option in fields(Request)),
    *((Limits, option.name) for option in fields(Limits)),
]


def check_short(call: Callable[[], object]) -> None:
    """Check that whatever `call` is refused with is one of ours, and short."""
    said = ""
    try:
        call()
    except OstinatoError as error:
        said = str(error)
    assert len(said) <= MOST, said[:300]


@pytest.mark.parametrize(("kind", "name"), OPTIONS_OF, ids=lambda each: str(each)[-20:])
def test_every_option_refuses_in_few_words(kind: Any, name: str) -> None:
    needed: dict[Any, dict[str, Any]] = {
        Request: {"request_id": "a", "prompt_ids": (1,)},
        EngineConfig: {"model": "m"},
    }
    for value in HUGE.values():
        if kind is not Limits or isinstance(value, int):  # those were read before
            check_short(lambda value=value: kind(**{**needed.get(kind, {}), name: value}))  # type: ignore[misc]


def test_what_stands_where_options_belong_is_refused_in_few_words() -> None:
    for value in HUGE.values():
        name = value if isinstance(value, str | int) else str(type(value))
        for read in (SamplingParams.read, EngineConfig.read):
            for options in (value, {name: 1}):
                with pytest.raises(OstinatoError) as caught:
                    read(options)
                assert len(str(caught.value)) <= MOST


def test_a_long_name_is_told_in_part() -> None:
    long = "r" * 100_000
    assert len(str(taken_name(long))) <= MOST
    with pytest.raises(OstinatoError) as caught:
        Request(long, (1,), arrival_s=math.nan)
    assert len(str(caught.value)) <= MOST


def test_what_an_engine_is_asked_is_told_in_part(tiny: Path) -> None:
    with engine(tiny) as made:
        for value in HUGE.values():
            check_short(lambda value=value: made.ask(value, greedy(1)).cancel())  # type: ignore[misc]
            check_short(lambda value=value: made.submit(value))  # type: ignore[misc]
            check_short(lambda value=value: made.ask([3], value))  # type: ignore[misc]
            check_short(lambda value=value: made.ask([3, value], greedy(1)))  # type: ignore[misc]
        with pytest.raises(OstinatoError, match="names token a int that cannot be written out"):
            made.ask([3, 10**5000], greedy(1))
        long = made.ask([3], greedy(1), request_id="r" * 100_000)
        list(long)
        with pytest.raises(OstinatoError) as caught:
            list(long)
        assert len(str(caught.value)) <= MOST


def test_what_has_no_text_is_told_by_its_kind() -> None:
    assert shown(Mute()) == "a Mute that cannot be written out"
    assert shown(10**5000) == "a int that cannot be written out"
    assert len(shown(LONG_NAME())) < 300
