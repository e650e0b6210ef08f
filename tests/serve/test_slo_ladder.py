"""Ladder: the lowest priority is shed first, and never all of the highest."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ostinato.serve.slo.ladder import Ladder


def admitted(ladder: Ladder, traffic: Mapping[int, int], second: int = 0) -> dict[int, int]:
    """Ask in turns, as many of each priority as `traffic` says; return who was let in."""
    asked = [priority for priority, count in traffic.items() for _ in range(count)]
    counts = dict.fromkeys(traffic, 0)
    for priority in asked:
        counts[priority] += ladder.admits(priority, second)
    return counts


def test_nothing_is_shed_at_first() -> None:
    assert admitted(Ladder(), {0: 5, 10: 5}) == {0: 5, 10: 5}


def test_rung_by_rung_the_lowest_priority_goes_first() -> None:
    ladder, traffic = Ladder(), {-1: 16, 0: 16, 5: 16}
    admitted(ladder, traffic)
    seen = []
    while ladder.climb(0):
        seen.append(admitted(ladder, traffic))
    assert seen == [
        {-1: 16, 0: 16, 5: 8},
        {-1: 16, 0: 16, 5: 0},
        {-1: 16, 0: 8, 5: 0},
        {-1: 16, 0: 0, 5: 0},
        {-1: 8, 0: 0, 5: 0},
        {-1: 2, 0: 0, 5: 0},
    ]


def test_rungs_are_taken_back_in_the_opposite_order() -> None:
    ladder, traffic = Ladder(), {0: 16, 5: 16}
    admitted(ladder, traffic)
    up = []
    while ladder.climb(0):
        up.append(admitted(ladder, traffic))
    down = []
    while ladder.rung:
        down.append(admitted(ladder, traffic))
        ladder.descend()
    assert down == up[::-1]
    assert admitted(ladder, traffic) == traffic


def test_where_all_are_alike_one_in_eight_still_comes_in() -> None:
    ladder = Ladder()
    admitted(ladder, {0: 10})
    assert ladder.climb(0)
    assert ladder.climb(0)
    assert not ladder.climb(0)
    assert not ladder.can_climb(0)
    assert admitted(ladder, {0: 80}) == {0: 10}


def test_without_traffic_there_is_nothing_to_shed() -> None:
    ladder = Ladder()
    assert not ladder.climb(0)
    admitted(ladder, {0: 1}, second=0)
    assert not ladder.can_climb(61)


def test_a_priority_below_all_that_were_seen_is_shed_with_the_lowest() -> None:
    ladder = Ladder()
    admitted(ladder, {0: 8, 5: 8})
    ladder.climb(0)
    assert admitted(ladder, {9: 4}) == {9: 0}
    assert admitted(ladder, {-9: 4}) == {-9: 4}


def test_many_rare_priorities_take_one_rung_together() -> None:
    ladder = Ladder()
    rare = dict.fromkeys(range(1, 51), 1)
    admitted(ladder, {0: 200, **rare})
    ladder.climb(0)
    let_in = admitted(ladder, rare)
    assert sum(let_in.values()) <= 50 - 31  # an eighth of 250 requests


@given(
    st.dictionaries(st.integers(-100, 100), st.integers(1, 40), min_size=1, max_size=8),
    st.integers(0, 20),
)
def test_a_priority_never_fares_worse_than_a_lower_one(traffic: dict[int, int], rungs: int) -> None:
    ladder = Ladder()
    admitted(ladder, traffic)
    for _ in range(rungs):
        ladder.climb(0)
    shares = [ladder._share_of(priority) for priority in sorted(traffic)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0
