"""The breaker under any traffic: what never happens, whatever comes."""

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ostinato.serve.slo import Breaker, Change, Objectives, State

# Stretches of time: how long, how many late and how many good ones each second, which priorities.
STRETCHES = st.lists(
    st.tuples(
        st.integers(1, 90),
        st.integers(0, 10),
        st.integers(0, 10),
        st.lists(st.integers(-2, 5), max_size=4),
    ),
    max_size=8,
)
LEGAL = {
    State.CLOSED: {State.OPEN},
    State.OPEN: {State.OPEN, State.RECOVERING},
    State.RECOVERING: {State.RECOVERING, State.OPEN, State.CLOSED},
}
Stretches = list[tuple[int, int, int, list[int]]]


def play(breaker: Breaker, stretches: Stretches, *, asked_often: bool = False) -> list[Change]:
    changes: list[Change] = []
    now = 1000.0
    for seconds, late, good, priorities in stretches:
        for _ in range(seconds):
            for priority in priorities:
                is_in = breaker.admits(priority, now)
                if breaker.state(now) is State.CLOSED:
                    assert is_in, "a closed breaker lets everybody in"
            breaker.observe(now, ttft_s=0.6, count=late)
            breaker.observe(now, ttft_s=0.1, count=good)
            for tenth in range(10 if asked_often else 0):
                breaker.state(now + tenth / 10)
            now += 1.0
    breaker.state(now)
    changes += breaker.take_changes()
    return changes


@settings(max_examples=40)
@example([(37, 0, 1, []), (66, 5, 5, []), (37, 0, 1, []), (66, 0, 5, [])])  # nobody to shed
@given(STRETCHES)
def test_it_moves_only_between_neighbouring_states(stretches: Stretches) -> None:
    states = [State.CLOSED, *(change.state for change in play(Breaker(), stretches))]
    assert all(after in LEGAL[before] for before, after in pairwise(states))


@settings(max_examples=40)
@given(STRETCHES)
def test_rungs_come_and_go_one_by_one_and_none_is_left_when_it_is_closed(
    stretches: Stretches,
) -> None:
    changes = play(Breaker(), stretches)
    rungs = [0, *(change.rung for change in changes)]
    assert all(abs(after - before) <= 1 for before, after in pairwise(rungs))
    assert all(change.rung == 0 for change in changes if change.state is State.CLOSED)


@settings(max_examples=40)
@given(STRETCHES)
def test_it_is_never_hasty(stretches: Stretches) -> None:
    objectives = Objectives()
    for before, after in pairwise(play(Breaker(objectives), stretches)):
        if after.state is State.OPEN and before.state is State.OPEN:
            assert after.at_s - before.at_s >= objectives.climb_s
        if after.state in (State.RECOVERING, State.CLOSED):
            assert after.at_s - before.at_s >= objectives.calm_s
        if before.state is State.CLOSED:
            assert after.at_s - before.at_s >= objectives.rules[0].for_s


@settings(max_examples=40)
@given(STRETCHES)
def test_it_opens_only_on_a_broken_promise(stretches: Stretches) -> None:
    for change in play(Breaker(), stretches):
        if change.state is State.OPEN:
            assert change.because is not None
            assert max(change.because.rate, change.because.rate_now) >= 1


@settings(max_examples=25)
@given(STRETCHES)
def test_how_often_it_is_asked_changes_nothing(stretches: Stretches) -> None:
    assert play(Breaker(), stretches) == play(Breaker(), stretches, asked_often=True)


@settings(max_examples=15)
@given(STRETCHES)
def test_half_an_hour_of_peace_always_closes_it(stretches: Stretches) -> None:
    breaker = Breaker()
    play(breaker, stretches)
    end = 1000.0 + sum(seconds for seconds, *_ in stretches)
    for seconds in range(0, 30 * 60, 10):
        breaker.state(end + seconds)
    assert breaker.state(end + 3600) is State.CLOSED
    assert breaker.rung == 0
    assert breaker.admits(1_000_000, end + 3600)
