"""Scheduler: whole loads on a pretended device, whose answers show every page that was wrong."""

from collections import deque
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.pretend_engine import PretendEngine, engine, ideal_answer
from llm.traces import azure, mooncake
from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import PrefixIndex
from ostinato.llm.limits import Limits
from ostinato.llm.request import FinishReason, Request, SamplingParams
from ostinato.llm.scheduler import Scheduler


def check_answers(pretend: PretendEngine, requests: list[Request]) -> None:
    """Every request is over, with the answer it would have had alone, or the beginning of it."""
    for request in requests:
        answer = pretend.answers[request.request_id]
        ideal = ideal_answer(request, answer.budget)
        assert answer.reason is not None
        if answer.reason is FinishReason.ABORT:
            assert answer.tokens == ideal[: len(answer.tokens)]
        else:
            assert answer.tokens == ideal


def check_all_came_back(pretend: PretendEngine, pages: int) -> None:
    pretend.scheduler.check_integrity()
    counts = pretend.scheduler.counts()
    assert (counts.waiting, counts.waiting_tokens, counts.running) == (0, 0, 0)
    assert counts.available_pages == pages


def random_request(random: Random, name: str, longest: int, arrival_s: float) -> Request:
    """Prompts of few different tokens, so that beginnings are often the same."""
    beginning = [random.randint(0, 1)] * random.randint(0, longest // 2)
    rest = [random.randint(0, 3) for _ in range(random.randint(1, longest // 2))]
    return Request(
        name,
        (*beginning, *rest),
        SamplingParams(
            max_tokens=random.randint(1, longest // 2),
            schema={"type": "object"} if random.random() < 0.1 else None,
        ),
        priority=random.randint(-1, 1),
        salt=random.choice(["", "", "other"]),
        arrival_s=arrival_s,
    )


@given(
    seed=st.integers(0, 2**32),
    pages=st.integers(16, 60),
    max_batch=st.integers(1, 12),
    prefill_tokens=st.integers(1, 64),
    steps=st.integers(1, 8),
    depth=st.integers(1, 3),
    prefix=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_under_any_limits_every_answer_is_the_one_it_would_be_alone(
    seed: int,
    pages: int,
    max_batch: int,
    prefill_tokens: int,
    steps: int,
    depth: int,
    prefix: bool,
) -> None:
    random = Random(seed)
    limits = Limits(
        max_batch=max_batch,
        prefill_tokens=prefill_tokens,
        steps_per_launch=steps,
        page_tokens=4,
        max_model_len=64,
    )
    pretend = engine(limits, pages, prefix=prefix, depth=depth, early=random)
    requests = [random_request(random, f"r{n}", 60, n * random.random()) for n in range(30)]
    for number, request in enumerate(requests):
        pretend.submit(request)
        if random.random() < 0.5:
            pretend.step()
            pretend.scheduler.check_integrity()
        if random.random() < 0.15:
            pretend.cancel(f"r{random.randint(0, number)}")
        if random.random() < 0.03:
            pretend.restart()
    pretend.run(5_000)
    check_answers(pretend, requests)
    check_all_came_back(pretend, pages)


def test_500_requests_at_once_with_40_pages_are_all_answered() -> None:
    random = Random(1)
    limits = Limits(max_batch=64, max_model_len=512, prefill_tokens=256)
    pretend = engine(limits, pages=40, depth=2)
    requests = [random_request(random, f"r{n}", 200, 0.0) for n in range(500)]
    for request in requests:
        pretend.submit(request)
    pretend.run()
    check_answers(pretend, requests)
    check_all_came_back(pretend, 40)
    assert pretend.scheduler.counts().preemptions > 0


def test_a_storm_of_cancellations_leaves_nothing_behind() -> None:
    random = Random(2)
    limits = Limits(max_batch=32, max_model_len=512, prefill_tokens=128)
    pretend = engine(limits, pages=60, depth=2)
    requests = [random_request(random, f"r{n}", 200, float(n)) for n in range(400)]
    for number, request in enumerate(requests):
        pretend.submit(request)
        if number % 4 == 0:
            pretend.step()
        if number % 50 == 49:
            for _ in range(60):
                pretend.cancel(f"r{random.randint(0, number)}")
            pretend.scheduler.check_integrity()
    pretend.run()
    check_answers(pretend, requests)
    check_all_came_back(pretend, 60)
    reasons = [answer.reason for answer in pretend.answers.values()]
    assert 100 < reasons.count(FinishReason.ABORT) < 400


def test_cancelling_everything_at_every_moment_of_a_run_leaves_nothing_behind() -> None:
    for moment in range(12):
        limits = Limits(max_batch=4, prefill_tokens=16, page_tokens=4)
        pretend = engine(limits, pages=40, depth=2)
        names = [f"r{n}" for n in range(8)]
        random = Random(3)
        for name in names:
            pretend.submit(random_request(random, name, 60, 0.0))
        for _ in range(moment):
            pretend.step()
        for name in names:
            pretend.cancel(name)
        pretend.run()
        check_all_came_back(pretend, 40)


def test_an_unending_stream_of_urgent_requests_does_not_starve_an_ordinary_one() -> None:
    limits = Limits(max_batch=2, priority_s=10.0)
    pretend = engine(limits, pages=40)
    ordinary = Request("ordinary", (1, 2, 3), SamplingParams(max_tokens=4), arrival_s=0.0)
    for second in range(100):
        for copy in "abcd":
            name = f"urgent-{second}-{copy}"
            params = SamplingParams(max_tokens=8)
            pretend.submit(Request(name, (second, 5), params, -1, arrival_s=float(second)))
        if second == 0:
            pretend.submit(ordinary)
        pretend.step()
    waited = [pretend.answers["ordinary"].over_at, pretend.answers["urgent-0-a"].over_at]
    assert waited[1] is not None
    assert waited[0] is not None
    assert waited[1] < waited[0] < 90
    assert pretend.scheduler.counts().waiting > 100


@pytest.mark.parametrize(("kind", "scale"), [("conv", 16), ("code", 32)])
def test_no_request_of_a_real_trace_starves(shared: Path, kind: str, scale: int) -> None:
    """A plan takes half a second of the trace's time, so that the queue grows long."""
    limits = Limits(
        max_batch=16, max_model_len=512, prefill_tokens=128, steps_per_launch=4, max_waiting=10_000
    )
    pretend = engine(limits, pages=150, depth=2)
    requests = list(azure(shared, kind, 700, scale, longest=400))
    coming = deque(sorted(requests, key=lambda request: request.arrival_s))
    now = coming[0].arrival_s
    most_waiting = 0
    while coming or not pretend.scheduler.is_idle:
        while coming and coming[0].arrival_s <= now:
            pretend.submit(coming.popleft())
        pretend.step()
        now += 0.5
        most_waiting = max(most_waiting, pretend.scheduler.counts().waiting)
    assert most_waiting > 50
    check_answers(pretend, requests)
    check_all_came_back(pretend, 150)
    # Priorities lie two levels apart at most: whoever came so much earlier has begun earlier.
    begun = {name: answer.begun_at or 0 for name, answer in pretend.answers.items()}
    most_gain = 2 * limits.priority_s
    long_before: deque[Request] = deque()
    last_begun = 0
    for request in requests:
        while long_before and long_before[0].arrival_s < request.arrival_s - most_gain:
            last_begun = max(last_begun, begun[long_before.popleft().request_id])
        assert begun[request.request_id] >= last_begun
        long_before.append(request)


def test_the_prefix_cache_finds_what_could_be_found_in_the_mooncake_trace(shared: Path) -> None:
    """The index alone, pages without end: 36.6 % of all blocks were seen before."""
    pool = PagePool(300_000)
    index = PrefixIndex(pool)
    limits = Limits(max_model_len=1 << 20, prefill_tokens=1 << 20, steps_per_launch=1, max_batch=1)
    scheduler = Scheduler(limits, pool, index)
    blocks = found = 0
    for request, request_blocks in mooncake(shared, scale=32):
        blocks += request_blocks
        scheduler.submit(request)
        scheduler.plan()
        found += scheduler.cached_tokens(request.request_id) // limits.page_tokens
        scheduler.advance({}, {request.request_id: FinishReason.STOP})
    assert blocks == 288_500
    assert found / blocks == pytest.approx(0.366, abs=0.02)
    assert scheduler.counts().cached_tokens == found * limits.page_tokens
    scheduler.check_integrity()


def test_with_few_pages_the_mooncake_trace_is_answered_and_some_of_it_found(shared: Path) -> None:
    limits = Limits(max_batch=8, max_model_len=4096, prefill_tokens=2048, max_waiting=10_000)
    pretend = engine(limits, pages=800, depth=2)
    requests = [request for request, _ in mooncake(shared, scale=32, count=300)]
    for request in requests:
        pretend.submit(request)
    pretend.run()
    check_answers(pretend, requests)
    check_all_came_back(pretend, 800)
    counts = pretend.scheduler.counts()
    assert 0.02 < counts.cached_tokens / counts.prompt_tokens < 0.366
