"""Worth is (calls x time saved) / bytes, and the least worthy go first."""

from ostinato.graphs.cache import Holding, make_room


def holding(
    graph_id: str, *, nbytes: int = 10, calls: int = 1, saved_us: float = 1.0, age: int = 0
) -> Holding:
    return Holding(graph_id, nbytes, calls, saved_us, age)


def test_nothing_goes_while_there_is_room() -> None:
    assert make_room([holding("a")], holding("new"), 20) == []


def test_the_least_worthy_goes_first() -> None:
    held = [holding("often", calls=9), holding("slow", saved_us=9), holding("none")]
    assert make_room(held, holding("new", calls=2), 30) == ["none"]


def test_a_large_one_must_be_worth_its_bytes() -> None:
    held = [holding("large", nbytes=100, calls=10), holding("small", nbytes=10, calls=5)]
    assert make_room(held, holding("new", calls=2), 115) == ["large"]


def test_several_go_for_one() -> None:
    held = [holding("a", age=1), holding("b", age=2), holding("c", age=3)]
    assert make_room(held, holding("new", nbytes=20, calls=9), 30) == ["a", "b"]


def test_among_equals_the_oldest_goes() -> None:
    held = [holding("late", age=2), holding("early", age=1)]
    assert make_room(held, holding("new"), 20) == ["early"]


def test_a_newcomer_never_evicts_what_is_worth_more() -> None:
    assert make_room([holding("a", calls=5)], holding("new", calls=4), 10) is None


def test_a_newcomer_larger_than_the_budget_evicts_nothing() -> None:
    assert make_room([holding("a")], holding("new", nbytes=100, calls=10**6), 50) is None


def test_a_recording_that_saves_nothing_still_counts_its_calls() -> None:
    held = [holding("seldom", saved_us=0.0), holding("often", saved_us=0.0, calls=9)]
    assert make_room(held, holding("new", saved_us=0.0, calls=2), 20) == ["seldom"]


def test_no_bytes_are_no_division_by_zero() -> None:
    assert make_room([holding("a", nbytes=0)], holding("new", nbytes=0), 0) == []
