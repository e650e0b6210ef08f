"""Loads: who asks for what and when, and each client's share of it."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest

from ostinato.bench.serve.planning import (
    Kind,
    Level,
    Shape,
    as_fast_as_taken,
    as_in_trace,
    closed_loop,
    poisson,
    read_levels,
    share_out,
)
from ostinato.errors import UsageError

SHAPE = Shape(prompt=5, new=7, vocabulary=50)


def test_a_closed_loop_has_the_same_number_of_requests_in_every_stream() -> None:
    streams = closed_loop(3, 4, SHAPE)
    assert [len(stream) for stream in streams] == [4, 4, 4]
    assert all(one.at_s is None and one.new == 7 for one in chain(*streams))
    prompts = [tuple(one.prompt) for one in chain(*streams)]
    assert len(set(prompts)) == 12  # else a prefix cache would answer them
    assert all(10 <= token < 50 for prompt in prompts for token in prompt)


def test_requests_at_random_come_as_often_as_asked_and_the_rise_is_not_counted() -> None:
    planned = poisson(20.0, 50.0, SHAPE, rising_s=10.0)
    assert 1050 < len(planned) < 1350
    moments = [one.at_s or 0.0 for one in planned]
    assert moments == sorted(moments)
    assert all(one.is_counted == ((one.at_s or 0.0) >= 10.0) for one in planned)
    gaps = [b - a for a, b in pairwise(moments)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert spread / mean == pytest.approx(1.0, abs=0.1)  # no metronome


def test_a_trace_is_sent_faster_with_its_own_lengths() -> None:
    planned = as_in_trace([(1.0, 3, 2), (4.0, 6, 1)], 2.0, SHAPE, rising_s=1.0)
    assert [(one.at_s, len(one.prompt), one.new) for one in planned] == [(0.5, 3, 2), (2.0, 6, 1)]
    assert [one.is_counted for one in planned] == [False, True]


def test_a_trace_as_fast_as_it_is_taken_keeps_its_order_in_streams_without_a_clock() -> None:
    arrivals = [(float(n), n + 1, 2) for n in range(5)]
    streams = as_fast_as_taken(arrivals, 2, SHAPE)
    assert [[len(one.prompt) for one in stream] for stream in streams] == [[1, 3, 5], [2, 4]]
    assert all(one.at_s is None and one.is_counted for one in chain(*streams))
    assert len(as_fast_as_taken(arrivals, 9, SHAPE)) == 5


def test_so_many_clients_go_away_half_way() -> None:
    streams = closed_loop(1, 1000, Shape(1, 20, 50, cancelled=0.3))
    gone = [one.cancel_after for one in streams[0] if one.cancel_after is not None]
    assert 230 < len(gone) < 370
    assert all(1 <= after < 10 for after in gone)


@pytest.mark.parametrize(("clients", "parts"), [(1, 1), (2, 2), (3, 3), (9, 5)])
def test_every_stream_is_dealt_to_one_client_and_evenly(clients: int, parts: int) -> None:
    streams = closed_loop(5, 1, SHAPE)
    dealt = share_out(streams, clients)
    assert len(dealt) == parts
    assert sorted(map(id, chain(*dealt))) == sorted(map(id, streams))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_loads_are_read_in_order() -> None:
    levels = read_levels("1, 64", "2.5", "4,full")
    assert levels == (
        Level(Kind.CLOSED, 1),
        Level(Kind.CLOSED, 64),
        Level(Kind.POISSON, 2.5),
        Level(Kind.TRACE, 4),
        Level(Kind.FULL, 256),
    )
    assert [str(level) for level in levels] == [
        "1 stream",
        "64 streams",
        "2.5 requests/s",
        "trace x4",
        "trace, full, 256 streams",
    ]
    assert [level.streams for level in levels] == [1, 64, None, None, 256]
    assert [level.is_trace for level in levels] == [False, False, False, True, True]


@pytest.mark.parametrize(
    "words",
    [("0", "", ""), ("1.5", "", ""), ("", "x", ""), ("", "", "-1"), ("full", "", "")],
)
def test_what_is_no_load_is_refused(words: tuple[str, str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        read_levels(*words)
    assert caught.value.code == "OST4021"
