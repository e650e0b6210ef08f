"""Lateness: how many were late within the last seconds, exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import UsageError
from ostinato.serve.slo import LENGTH_CLASSES, Objectives, Rule, declared, length_class
from ostinato.serve.slo.windows import Lateness


def test_a_latency_on_the_promise_is_in_time() -> None:
    late = Lateness(0.4, 60)
    late.note(10, 0.4, 3)
    late.note(10, 0.401, 2)
    assert late.seen(10, 60) == (5, 2)


def test_what_is_older_than_the_window_does_not_count() -> None:
    late = Lateness(0.4, 60)
    late.note(0, 1.0, 1)
    late.note(5, 1.0, 1)
    assert late.seen(10, 9) == (1, 1)
    assert late.seen(10, 10) == (2, 2)
    assert late.seen(16, 10) == (0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(1, 5)), max_size=60),
    st.integers(1, 30),
)
def test_it_counts_as_a_list_of_all_latencies_would(
    events: list[tuple[int, bool, int]], window_s: int
) -> None:
    late, second, all_of_them = Lateness(0.4, 30), 0, []
    for later, is_late, count in events:
        second += later
        late.note(second, 1.0 if is_late else 0.1, count)
        all_of_them += [(second, is_late)] * count
    within = [is_late for at, is_late in all_of_them if at >= second - window_s]
    assert late.seen(second, window_s) == (len(within), sum(within))


def test_it_keeps_no_more_than_the_window() -> None:
    late = Lateness(0.4, 60)
    for second in range(1000):
        late.note(second, 1.0, 1)
    assert len(late._seconds) <= 62


@pytest.mark.parametrize(
    ("prompt_tokens", "name"),
    [(1, "short"), (511, "short"), (512, "medium"), (4095, "medium"), (4096, "long")],
)
def test_prompts_fall_into_three_classes(prompt_tokens: int, name: str) -> None:
    assert length_class(prompt_tokens) == name


def test_the_default_is_400_ms_for_every_class_and_both_kinds() -> None:
    promises = Objectives().promises()
    assert set(promises) == {(kind, each) for kind in ("ttft", "itl") for each in LENGTH_CLASSES}
    assert set(promises.values()) == {0.4}
    assert Objectives().share == 0.95
    assert Objectives().rules == (Rule(window_s=60, confirm_s=10, for_s=60, burn=1),)


def test_a_class_left_out_has_no_promise() -> None:
    assert Objectives(ttft_s={"short": 0.2}, itl_s={}).promises() == {("ttft", "short"): 0.2}


@pytest.mark.parametrize(
    "options",
    [
        {"ttft_s": {"tiny": 0.4}},
        {"ttft_s": {"short": 0}},
        {"itl_s": {"short": float("nan")}},
        {"share": 95},
        {"share": 1.0},
        {"rules": ()},
        {"least": 0},
        {"climb_s": 0},
        {"calm_s": 0},
        {"rules": (Rule(confirm_s=61),)},
        {"rules": (Rule(confirm_s=0.5),)},
        {"rules": (Rule(window_s=1e9),)},
        {"rules": (Rule(for_s=-1),)},
        {"rules": (Rule(burn=0),)},
        {"calm_burn": 2},
    ],
    ids=str,
)
def test_objectives_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        Objectives(**options)  # type: ignore[arg-type]
    assert caught.value.code == "OST6030"


def test_objectives_are_declared_by_kind_and_class_and_the_class_wins() -> None:
    read = declared(["itl.long=0.1", "itl=0.05", "ttft.short=0.2", "ttft.long=off"])
    assert dict(read.itl_s) == {"short": 0.05, "medium": 0.05, "long": 0.1}
    assert dict(read.ttft_s) == {"short": 0.2, "medium": 0.4}
    assert declared([]).promises() == Objectives().promises()


def test_all_of_a_kind_can_be_taken_back_but_one() -> None:
    assert dict(declared(["ttft.short=1", "ttft=off"]).ttft_s) == {"short": 1.0}


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=fast", "ttfb=1", "ttft.tiny=1", "ttft=-1", "itl=nan"]
)
def test_an_objective_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        declared([text])
    assert caught.value.code == "OST6030"
