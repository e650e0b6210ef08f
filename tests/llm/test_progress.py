"""How far a request has come: what a launch could bring it, and the pages for that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ostinato.llm.kv.prefix import PageKeys
from ostinato.llm.limits import Limits
from ostinato.llm.request import Request, SamplingParams
from ostinato.llm.scheduler.progress import Progress


def progress_of(
    prompt: int, *, new: int, budget: int, in_flight: int = 0, is_single: bool = False
) -> Progress:
    """A request that has been prefilled and has no page."""
    params = SamplingParams(max_tokens=budget, schema={"type": "object"} if is_single else None)
    request = Request("a", (1,) * prompt, params)
    progress = Progress(request, (0.0, 0), budget, PageKeys("", 4), [1] * (prompt + new))
    progress.in_flight = in_flight
    return progress


@given(
    prompt=st.integers(1, 30),
    new=st.integers(0, 20),
    left=st.integers(1, 20),
    in_flight=st.integers(0, 8),
    steps=st.integers(1, 8),
    pages=st.integers(0, 20),
    page_tokens=st.sampled_from([1, 4, 16]),
    is_single=st.booleans(),
)
def test_it_lacks_the_pages_of_all_tokens_that_a_launch_may_write(
    prompt: int,
    new: int,
    left: int,
    in_flight: int,
    steps: int,
    pages: int,
    page_tokens: int,
    is_single: bool,
) -> None:
    budget = new + left
    progress = progress_of(prompt, new=new, budget=budget, in_flight=in_flight, is_single=is_single)
    progress.pages = list(range(pages))
    run = in_flight + (1 if is_single else steps)
    # The input of each step is written, which is the token before the one that it brings.
    written = {prompt + new - 1 + step for step in range(run) if new + step < budget}
    needed = Limits(page_tokens=page_tokens).pages_for(1 + max(written))
    assert progress.pages_short(steps, page_tokens) == max(0, needed - pages)


def test_what_is_under_way_counts_as_if_it_all_came() -> None:
    assert progress_of(3, new=2, budget=5, in_flight=2).can_decode
    assert progress_of(3, new=2, budget=5, in_flight=2).remaining == 1
    assert not progress_of(3, new=2, budget=5, in_flight=3).can_decode
    assert progress_of(3, new=2, budget=5, in_flight=3).remaining == 0


def test_one_whose_tokens_have_to_be_known_waits_for_those_under_way() -> None:
    waiting = progress_of(3, new=2, budget=5, in_flight=1, is_single=True)
    assert not waiting.can_decode
    waiting.in_flight = 0
    assert waiting.can_decode
    assert waiting.most_steps == 1


def test_nobody_decodes_before_the_prompt_is_planned_to_its_last_token() -> None:
    progress = progress_of(3, new=0, budget=5)
    progress.goal = 2
    assert not progress.can_decode
    progress.planned = 2
    assert progress.can_decode
