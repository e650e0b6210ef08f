"""The breaker, second by second: when it opens, whom it sheds, and how it closes again."""

import re

import pytest

from ostinato.serve.slo import Breaker, Objectives, Rule, State
from serve.simulated_service import Service


def feed(breaker: Breaker, begin: float, seconds: int, *, late: int, good: int) -> None:
    """Each second so many late and so many good first tokens, and as many requests."""
    for second in range(seconds):
        now = begin + second + 0.5
        for _ in range(late + good):
            breaker.admits(0, now)
        if late:
            breaker.observe(now, ttft_s=0.5, count=late)
        if good:
            breaker.observe(now, ttft_s=0.1, count=good)


def test_the_95th_percentile_above_400_ms_for_60_seconds_opens_it() -> None:
    breaker = Breaker()
    feed(breaker, 0, 60, late=1, good=9)
    assert breaker.state(60) is State.CLOSED
    feed(breaker, 60, 5, late=1, good=9)
    assert breaker.state(65) is State.OPEN


def test_five_of_a_hundred_may_be_late_for_ever() -> None:
    breaker = Breaker()
    feed(breaker, 0, 600, late=1, good=19)
    assert breaker.state(600) is State.CLOSED
    assert breaker.take_changes() == []


def test_a_burst_that_is_over_does_not_open_it() -> None:
    breaker = Breaker()
    feed(breaker, 0, 20, late=10, good=0)
    feed(breaker, 20, 100, late=0, good=10)
    assert breaker.state(120) is State.CLOSED


def test_a_breach_that_is_over_when_the_minute_is_does_not_open_it() -> None:
    breaker = Breaker()
    feed(breaker, 0, 50, late=10, good=0)
    feed(breaker, 50, 300, late=0, good=10)
    assert breaker.state(350) is State.CLOSED, "the short window must confirm it"


def test_a_handful_of_requests_says_nothing() -> None:
    breaker = Breaker()
    for second in range(0, 600, 20):  # 16 a minute, all late, four at a time
        breaker.observe(second, ttft_s=3.0, count=4)
        breaker.admits(0, second)
        assert breaker.state(second + 1) is State.CLOSED
    assert breaker.state(600) is State.CLOSED


@pytest.mark.parametrize("kind", ["ttft_s", "itl_s"])
@pytest.mark.parametrize("name", ["short", "medium", "long"])
def test_each_length_class_and_each_latency_is_a_promise_of_its_own(kind: str, name: str) -> None:
    breaker = Breaker()
    for second in range(70):
        breaker.admits(0, second)
        for other in {"short", "medium", "long"} - {name}:
            breaker.observe(second, ttft_s=0.1, itl_s=0.01, count=100, length_class=other)
        breaker.observe(second, count=2, length_class=name, **{kind: 0.5})  # type: ignore[arg-type]
    assert breaker.state(70) is State.OPEN
    (change,) = breaker.take_changes()[:1]
    assert change.because is not None
    assert (f"{change.because.objective}_s", change.because.length_class) == (kind, name)


def test_burn_rates_are_the_share_of_late_ones_over_the_share_that_may_be() -> None:
    breaker = Breaker()
    breaker.observe(1, ttft_s=0.5, count=10)
    breaker.observe(1, ttft_s=0.1, count=90)
    burn = next(b for b in breaker.burns(2) if (b.objective, b.length_class) == ("ttft", "short"))
    assert burn.rate == pytest.approx(2.0)
    assert burn.rate_now == pytest.approx(2.0)
    assert burn.seen == 100
    later = next(iter(breaker.burns(20)))
    assert (later.rate, later.rate_now) == (pytest.approx(2.0), 0.0)


def test_a_second_rule_opens_it_sooner_when_it_is_worse() -> None:
    fast = Rule(window_s=10, confirm_s=5, for_s=5, burn=10)
    breaker = Breaker(Objectives(rules=(Rule(), fast)))
    feed(breaker, 0, 10, late=9, good=1)
    assert breaker.state(10) is State.OPEN


def test_a_balanced_service_never_sheds() -> None:
    service = Service(Breaker(), capacity=100)
    seen = service.run(600, {0: 60, 5: 30})
    assert not any(second.shed for second in seen)
    assert all(second.is_ready for second in seen)


def test_overload_sheds_the_lowest_priority_and_keeps_the_promise_to_the_others() -> None:
    service = Service(Breaker(), capacity=100)
    seen = service.run(600, {0: 60, 5: 80})
    assert not any(second.shed[0] for second in seen)
    assert sum(second.shed[5] for second in seen) > 1000
    assert any(second.state is State.OPEN for second in seen)
    assert all(second.is_ready for second in seen), "half of the traffic is still welcome"


def test_when_all_are_alike_it_sheds_some_of_them_and_the_service_recovers() -> None:
    service = Service(Breaker(), capacity=100)
    service.run(120, {0: 120})
    assert service.history[-1].state is not State.CLOSED
    took = service.until(lambda second: second.state is State.CLOSED, {0: 60})
    assert took < 300
    assert not service.run(120, {0: 60})[-1].shed


def test_it_is_not_ready_only_when_all_is_shed_that_may_be() -> None:
    service = Service(Breaker(), capacity=5)  # far too little: even one in eight is too much
    service.until(lambda second: not second.is_ready, {0: 200})
    assert service.history[-1].state is State.OPEN
    assert service.history[-1].let_in[0] > 0, "somebody must see when it is well again"
    service.capacity = 1000
    service.until(lambda second: second.is_ready, {0: 200})


def test_it_does_not_flap_between_the_burn_rates_that_open_and_calm_it() -> None:
    breaker = Breaker()
    feed(breaker, 0, 62, late=2, good=8)
    assert breaker.state(62) is State.OPEN
    breaker.take_changes()
    feed(breaker, 62, 15, late=0, good=10)  # the worst is over
    breaker.take_changes()
    feed(breaker, 77, 300, late=3, good=97)  # 0.6 of the budget: neither hot nor calm
    assert breaker.take_changes() == []
    assert breaker.state(377) is State.OPEN


def test_each_relapse_makes_it_wait_longer_before_it_lets_more_in() -> None:
    service = Service(Breaker(), capacity=100)
    service.run(1800, {0: 160})
    lets_in = [c.at_s for c in service.changes if c.state is State.RECOVERING]
    pauses = [
        change.at_s - before.at_s
        for before, change in zip(service.changes, service.changes[1:], strict=False)
        if change.state is State.RECOVERING and before.state is State.OPEN
    ]
    assert len(lets_in) >= 3
    assert pauses[-1] > 2 * pauses[0]
    assert pauses[-1] <= 8 * 30 + 60


def test_silence_closes_it() -> None:
    breaker = Breaker()
    feed(breaker, 0, 70, late=10, good=0)
    assert breaker.state(70) is State.OPEN
    assert breaker.state(70 + 120) is State.CLOSED
    assert breaker.admits(0, 10_000)


def test_retry_after_is_when_a_rung_may_be_taken_back_and_never_less_than_a_second() -> None:
    breaker = Breaker()
    feed(breaker, 0, 70, late=10, good=0)
    assert breaker.state(70) is State.OPEN
    rung = breaker.rung
    # The short window forgets after 10 s; from then on it is calm, and 30 s of that are asked for.
    waits = [breaker.retry_after_s(70 + second) for second in range(39)]
    assert waits[0] == 40
    assert waits == sorted(waits, reverse=True)
    assert 1 <= waits[-1] <= 3
    assert breaker.rung == rung
    breaker.state(110)
    assert breaker.rung == rung - 1


def test_a_clock_that_stands_or_steps_back_breaks_nothing() -> None:
    breaker = Breaker()
    feed(breaker, 100, 70, late=10, good=0)
    assert breaker.state(50) is State.OPEN
    breaker.observe(20, ttft_s=0.1)
    assert breaker.state(170) is State.OPEN
    burn = breaker.burns(170)[0]
    assert burn.seen > 500, "what was seen before is not forgotten for it"
    assert burn.rate > 10


def test_every_change_is_told_once_with_its_cause() -> None:
    service = Service(Breaker(), capacity=100)
    service.run(100, {0: 60, 5: 80})
    service.run(300, {0: 20})
    states = [change.state for change in service.changes]
    assert states[0] is State.OPEN
    assert states[-1] is State.CLOSED
    assert State.RECOVERING in states
    assert service.changes[0].because is not None
    assert service.changes[0].because.objective == "ttft"
    assert service.changes[0].because.rate >= 1
    assert service.breaker.take_changes() == []
    assert [c.rung for c in service.changes][-1] == 0


def test_a_change_says_in_words_what_and_why() -> None:
    service = Service(Breaker(), capacity=100)
    service.run(100, {0: 60, 5: 80})
    service.run(300, {0: 20})
    words = [str(change) for change in service.changes]
    assert re.fullmatch(r"open, rung 1: ttft of short prompts burns \d+\.\d", words[0])
    assert words[-1] == "closed, rung 0"
