"""The step: whatever runs beside a request, and however it is cut up, its tokens are the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from llm.paged_model import PagedModel
from llm.small_engine import END, Alone, Steps, greedy, ids
from ostinato.llm.request import FinishReason, SamplingParams

PROMPTS = [ids(count, seed) for seed, count in enumerate((1, 3, 16, 17, 40, 70, 5, 33, 2, 90))]


@pytest.fixture(scope="module")
def expected(tiny: Path) -> list[list[int]]:
    """Greedy tokens, one prompt at a time, without an engine."""
    model = PagedModel.load(tiny, pages=400)
    return [model.greedy(prompt, 24) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Alone:
    return Alone(tiny)


VARIANTS: dict[str, dict[str, Any]] = {
    "one step per launch": {"steps_per_launch": 1},
    "many steps per launch": {"steps_per_launch": 7},
    "a launch ahead": {"depth": 2},
    "a launch ahead, one step": {"depth": 2, "steps_per_launch": 1},
    "chunked": {"prefill_tokens": 16},
    "chunked, a launch ahead": {"prefill_tokens": 16, "depth": 2},
    "no prefix cache": {"prefix_cache": False},
    "more rows than requests": {"max_batch": 32},
    "one row": {"max_batch": 1},
    "small pages": {"page_tokens": 4},
    "recorded": {"backend": "tape"},
    "first tokens of the prefill": {"begins_in_prefill": True},
    "first tokens of the prefill, a launch ahead": {"begins_in_prefill": True, "depth": 2},
    "first tokens of chunks": {"begins_in_prefill": True, "prefill_tokens": 16, "max_batch": 2},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_tokens_are_those_of_each_prompt_alone(
    tiny: Path, expected: list[list[int]], variant: str
) -> None:
    steps = Steps(tiny, **VARIANTS[variant])
    names = [steps.submit(prompt, greedy(24), stop_ids=()) for prompt in PROMPTS]
    steps.run()
    assert [steps.answers[name].tokens for name in names] == expected
    assert {steps.answers[name].finish for name in names} == {FinishReason.LENGTH}


def test_a_first_token_of_the_prefill_saves_a_step_and_is_told_alike(tiny: Path) -> None:
    told = []
    for begins in (False, True):
        steps = Steps(tiny, begins_in_prefill=begins)
        name = steps.submit(PROMPTS[4], greedy(5), stop_ids=())
        steps.run()
        told.append((steps.answers[name].tokens, steps.answers[name].finish))
        assert steps.core.tally.steps == 5 - begins
    assert told[0] == told[1]


def test_first_tokens_come_of_the_prefill_only_where_nobody_decodes_and_no_history_counts(
    tiny: Path,
) -> None:
    for params, saved in (
        (greedy(4), 1),
        (SamplingParams(max_tokens=4, top_p=0.9), 1),
        (SamplingParams(max_tokens=4, presence_penalty=0.5), 0),
        (SamplingParams(max_tokens=4, logprobs=2), 0),
    ):
        steps = Steps(tiny, begins_in_prefill=True, steps_per_launch=1)
        steps.submit(PROMPTS[4], params, stop_ids=())
        steps.core.step()
        steps.submit(PROMPTS[3], params, stop_ids=())  # while the first one decodes
        steps.run()
        assert steps.core.tally.bucket_tokens.total() == 8 - saved


@pytest.mark.parametrize("depth", [1, 2])
def test_preempted_requests_go_on_as_if_they_had_not_been(
    tiny: Path, expected: list[list[int]], depth: int
) -> None:
    steps = Steps(tiny, depth=depth, pages=12, prefix_cache=False)
    names = [steps.submit(prompt, greedy(24), stop_ids=()) for prompt in PROMPTS]
    steps.run()
    assert steps.core.books.counts().preemptions > 0
    assert [steps.answers[name].tokens for name in names] == expected


@pytest.mark.parametrize("depth", [1, 2])
def test_a_cached_prefix_changes_no_token(
    tiny: Path, expected: list[list[int]], depth: int
) -> None:
    steps = Steps(tiny, depth=depth)
    for _ in range(2):
        names = [steps.submit(prompt, greedy(24), stop_ids=()) for prompt in PROMPTS]
        steps.run()
        assert [steps.answers[name].tokens for name in names] == expected
    assert steps.core.books.counts().cached_tokens == sum((len(p) - 1) // 16 * 16 for p in PROMPTS)


def test_a_model_s_end_stops_a_request_and_is_its_last_token(tiny: Path, alone: Alone) -> None:
    whole = alone(PROMPTS[3], greedy(24), stop_ids=())
    end = whole[7]
    at = whole.index(end)
    for depth in (1, 2):
        steps = Steps(tiny, depth=depth)
        name = steps.submit(PROMPTS[3], greedy(24), stop_ids=(end,))
        steps.run()
        assert steps.answers[name].tokens == whole[: at + 1]
        assert steps.answers[name].finish is FinishReason.STOP


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("pages", [200, 14])
def test_seeded_draws_do_not_depend_on_company_or_arrivals(
    tiny: Path, alone: Alone, depth: int, pages: int
) -> None:
    random = Random(depth * 1000 + pages)
    params = [
        SamplingParams(max_tokens=12, temperature=1.3, top_p=0.9),
        SamplingParams(max_tokens=15, temperature=0.9),
        SamplingParams(max_tokens=9, temperature=2.0, top_k=20, presence_penalty=0.5),
        greedy(14, repetition_penalty=1.3),
        SamplingParams(max_tokens=10, temperature=1.0, min_tokens=6, min_p=0.01),
    ]
    asked = [(PROMPTS[at % 10], params[at % 5], at) for at in range(20)]
    ideal = [alone(prompt, wanted, seed=seed) for prompt, wanted, seed in asked]
    steps = Steps(tiny, depth=depth, pages=pages)
    order = random.sample(range(20), 20)
    names: dict[int, str] = {}
    while len(names) < 20 or steps.core.has_work:
        for _ in range(random.choice((0, 0, 1, 3))):
            if len(names) < 20:
                at = order[len(names)]
                prompt, wanted, seed = asked[at]
                names[at] = steps.submit(prompt, wanted, seed=seed, arrival_s=float(len(names)))
        steps.step()
    steps.check_clean()
    assert [steps.answers[names[at]].tokens for at in range(20)] == ideal


def test_launches_that_end_early_lose_no_token(tiny: Path, expected: list[list[int]]) -> None:
    random = Random(3)
    steps = Steps(tiny, depth=2, steps_per_launch=8)
    launch = steps.core.resident.launch

    def hurried(count: int, **more: Any) -> Any:
        if random.random() < 0.5:
            steps.core.resident.hurry()
        return launch(count, **more)

    steps.core.resident.launch = hurried  # type: ignore[method-assign]
    names = [steps.submit(prompt, greedy(24), stop_ids=()) for prompt in PROMPTS]
    steps.run()
    assert [steps.answers[name].tokens for name in names] == expected


@pytest.mark.parametrize("depth", [1, 2])
def test_a_storm_of_cancels_leaves_nothing_behind(tiny: Path, alone: Alone, depth: int) -> None:
    random = Random(depth)
    steps = Steps(tiny, depth=depth, pages=20, prefill_tokens=32)
    living: list[str] = []
    ideal: dict[str, list[int]] = {}
    for _ in range(120):
        for _ in range(random.randint(0, 2)):
            prompt = random.choice(PROMPTS)
            name = steps.submit(prompt, greedy(random.randint(1, 24)), stop_ids=())
            living.append(name)
            ideal[name] = prompt
        if living and random.random() < 0.5:
            name = living.pop(random.randrange(len(living)))
            was_living = steps.answers[name].finish is None
            assert steps.cancel(name) == was_living
            assert not steps.cancel(name)
        steps.step()
    steps.run()
    ends = {answer.finish for answer in steps.answers.values()}
    assert ends == {FinishReason.ABORT, FinishReason.LENGTH}
    whole = {tuple(p): alone(p, greedy(24), stop_ids=()) for p in PROMPTS}
    for name, answer in steps.answers.items():
        assert answer.tokens == whole[tuple(ideal[name])][: len(answer.tokens)]


@pytest.mark.parametrize("depth", [1, 2])
def test_500_requests_at_once_with_40_pages(tiny: Path, alone: Alone, depth: int) -> None:
    random = Random(5)
    steps = Steps(tiny, depth=depth, pages=40, max_batch=32, steps_per_launch=8)
    asked = [(random.choice(PROMPTS), random.randint(1, 12)) for _ in range(500)]
    names = [steps.submit(prompt, greedy(tokens), stop_ids=()) for prompt, tokens in asked]
    steps.run()
    whole = {tuple(p): alone(p, greedy(12), stop_ids=()) for p in PROMPTS}
    for name, (prompt, tokens) in zip(names, asked, strict=True):
        assert steps.answers[name].tokens == whole[tuple(prompt)][:tokens]


def test_an_answer_ends_where_the_model_does(tiny: Path) -> None:
    steps = Steps(tiny, max_model_len=48)
    name = steps.submit(ids(40, 1), greedy(100), stop_ids=())
    steps.run()
    assert len(steps.answers[name].tokens) == 8
    assert steps.answers[name].finish is FinishReason.LENGTH


def test_a_low_priority_waits_for_a_high_one(tiny: Path) -> None:
    steps = Steps(tiny, max_batch=1)
    low = steps.submit(PROMPTS[1], greedy(4), priority=5)
    high = steps.submit(PROMPTS[1], greedy(4), priority=-5)
    order = []
    while steps.core.has_work:
        order += [event.request_id for event in steps.step() if event.finish]
    assert order == [high, low]


def test_requests_of_different_salts_share_nothing(tiny: Path) -> None:
    steps = Steps(tiny)
    for salt in ("a", "b", "a"):
        steps.submit(PROMPTS[4], greedy(2), salt=salt)
        steps.run()
    assert steps.core.books.counts().cached_tokens == 32
    assert END not in PROMPTS[4]
