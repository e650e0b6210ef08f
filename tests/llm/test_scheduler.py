"""Scheduler: one rule each, on plans read by hand."""

import pytest

from llm.pretend_engine import PretendEngine, engine, ideal_answer
from ostinato.errors import UsageError
from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import PrefixIndex
from ostinato.llm.limits import Limits
from ostinato.llm.refusals import PromptTooLong, QueueFull
from ostinato.llm.request import FinishReason, Request, SamplingParams
from ostinato.llm.scheduler import Chunk, Scheduler


def request(
    name: str, prompt_tokens: int, max_tokens: int = 8, first: int = 100, **options: object
) -> Request:
    schema = options.pop("schema", None)
    return Request(
        name,
        tuple(range(first, first + prompt_tokens)),
        SamplingParams(max_tokens=max_tokens, schema=schema),
        **options,  # type: ignore[arg-type]
    )


def scheduler(pages: int = 100, *, prefix: bool = False, **bounds: int) -> Scheduler:
    pool = PagePool(pages + 1)
    return Scheduler(Limits(**bounds), pool, PrefixIndex(pool) if prefix else None)


def test_a_prompt_is_prefilled_up_to_its_last_token_and_decodes_in_the_same_plan() -> None:
    books = scheduler(steps_per_launch=4)
    books.submit(request("a", 20))
    plan = books.plan()
    assert plan.prefill == (Chunk("a", 0, 19, is_last=True),)
    assert plan.joining == plan.decode == ("a",)
    assert plan.steps == 4
    assert len(books.pages_of("a")) == 2
    assert books.row_of("a") == 0


def test_a_prompt_of_one_token_needs_no_prefill() -> None:
    books = scheduler()
    books.submit(request("a", 1))
    plan = books.plan()
    assert plan.prefill == ()
    assert plan.joining == plan.decode == ("a",)


def test_pages_for_all_steps_are_granted_before_the_launch() -> None:
    books = scheduler(page_tokens=4, steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=9))
    assert books.plan().steps == 8
    assert len(books.pages_of("a")) == 3  # Positions 0 to 10 are written.


def test_a_part_of_the_tokens_and_pages_of_a_request_is_that_part() -> None:
    books = scheduler(page_tokens=4, steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=9))
    books.plan()
    tokens, pages = books.tokens_of("a"), books.pages_of("a")
    stretch = books.stretch_of(Chunk("a", 1, 2, is_last=False))
    assert (tuple(stretch.token_ids), stretch.start) == (tokens[1:3], 1)
    assert tuple(stretch.pages) == pages
    assert books.pages_of("a", 1) == pages[1:]


def test_who_joins_is_not_among_the_grown_whatever_pages_the_launch_takes() -> None:
    books = scheduler(page_tokens=4, steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=9))
    plan = books.plan()
    assert plan.joining == ("a",)
    assert plan.grown == ()


def test_a_launch_is_no_longer_than_the_longest_budget_left() -> None:
    books = scheduler(steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=3))
    books.submit(request("b", 4, max_tokens=5))
    assert books.plan().steps == 5


def test_long_prompts_are_prefilled_in_chunks_within_the_budget() -> None:
    books = scheduler(prefill_tokens=32)
    books.submit(request("a", 71))
    chunks = []
    for _ in range(3):
        plan = books.plan()
        chunks += plan.prefill
        books.advance({})
    assert [(c.start, c.count, c.is_last) for c in chunks] == [
        (0, 32, False),
        (32, 32, False),
        (64, 6, True),
    ]


def test_a_launch_has_one_step_while_a_prompt_is_half_prefilled() -> None:
    books = scheduler(prefill_tokens=32, steps_per_launch=8)
    books.submit(request("short", 4))
    books.submit(request("long", 60))
    first = books.plan()
    assert (first.decode, first.steps) == (("short",), 1)
    books.advance({"short": [1]})
    second = books.plan()
    assert (second.decode, second.steps) == (("short", "long"), 8)


def test_a_launch_has_one_step_while_a_prompt_waits_for_the_next_plan() -> None:
    books = scheduler(prefill_tokens=32, steps_per_launch=8)
    for name in "abc":
        books.submit(request(name, 17))
    first = books.plan()
    assert (first.decode, first.steps) == (("a", "b"), 1)
    books.advance({"a": [1], "b": [1]})
    second = books.plan()
    assert (second.decode, second.steps) == (("a", "b", "c"), 8)


@pytest.mark.parametrize(
    ("arrival_s", "counts"), [(1.0, {"half": 16, "new": 48}), (3.0, {"half": 48, "new": 16})]
)
def test_each_long_prompt_has_its_share_and_the_first_in_rank_has_the_rest(
    arrival_s: float, counts: dict[str, int]
) -> None:
    books = scheduler(200, prefill_tokens=64)
    books.submit(request("half", 1000, arrival_s=2.0))
    assert [chunk.count for chunk in books.plan().prefill] == [64]
    books.advance({})
    books.submit(request("new", 1000, arrival_s=arrival_s))
    assert {chunk.request_id: chunk.count for chunk in books.plan().prefill} == counts


def test_a_short_prompt_does_not_wait_for_a_long_one_before_it() -> None:
    books = scheduler(prefill_tokens=64)
    books.submit(request("long", 1000))
    books.submit(request("short", 10))
    plan = books.plan()
    assert plan.joining == ("short",)
    assert {c.request_id: c.count for c in plan.prefill} == {"long": 55, "short": 9}


def test_an_earlier_arrival_goes_first_whatever_the_order_of_submission() -> None:
    books = scheduler(max_batch=1)
    books.submit(request("late", 4, arrival_s=2.0))
    books.submit(request("early", 4, arrival_s=1.0))
    assert books.plan().decode == ("early",)


def test_rows_are_in_the_order_of_their_ranks_and_not_of_their_coming() -> None:
    books = scheduler()
    books.submit(request("late", 4, max_tokens=20, arrival_s=2.0))
    assert books.plan().decode == ("late",)
    books.submit(request("early", 4, arrival_s=1.0))
    plan = books.plan()
    assert plan.decode == ("early", "late")
    assert plan.joining == ("early",)


def test_a_level_of_priority_is_worth_its_seconds_and_no_more() -> None:
    books = Scheduler(Limits(max_batch=2, priority_s=10.0), PagePool(100))
    books.submit(request("ordinary, early", 4, arrival_s=0.0))
    books.submit(request("ordinary, late", 4, arrival_s=5.0))
    books.submit(request("urgent", 4, arrival_s=11.0, priority=-1))
    assert books.plan().decode == ("ordinary, early", "urgent")


def test_nobody_passes_the_head_of_the_queue_even_where_they_would_fit() -> None:
    books = scheduler(pages=10)
    books.submit(request("running", 80))
    assert books.plan().decode == ("running",)
    books.submit(request("large", 120, arrival_s=1.0))
    books.submit(request("small", 4, arrival_s=2.0))
    assert books.plan().prefill == ()
    assert books.row_of("small") is None


def test_when_pages_run_out_the_last_in_rank_is_preempted_and_comes_back() -> None:
    pretend = engine(Limits(page_tokens=4, steps_per_launch=1), pages=8, prefix=False)
    first, second = request("first", 11, max_tokens=16), request("second", 8, 12, first=500)
    pretend.submit(first)
    pretend.submit(second)
    preempted = []
    while not pretend.scheduler.is_idle:
        preempted += pretend.step().preempted
    assert preempted == ["second"]
    for one in (first, second):
        answer = pretend.answers[one.request_id].tokens
        assert answer == ideal_answer(one, one.params.max_tokens)


def test_a_preempted_request_finds_its_own_pages_again() -> None:
    pretend = engine(Limits(page_tokens=4, steps_per_launch=1), pages=8, prefix=True)
    pretend.submit(request("first", 11, max_tokens=16))
    pretend.submit(request("second", 8, 12, first=500))
    starts = []
    while not pretend.scheduler.is_idle:
        starts += [c.start for c in pretend.step().prefill if c.request_id == "second"]
    assert pretend.scheduler.counts().preemptions >= 1
    assert starts[0] == 0
    assert starts[1] > 0


def test_who_is_preempted_and_comes_back_in_one_plan_joins_and_is_not_among_the_grown() -> None:
    books = scheduler(6, prefix=True, page_tokens=4, steps_per_launch=1)
    books.submit(request("a", 9, max_tokens=4))  # Side by side they share no page yet.
    books.submit(request("b", 10))
    for _ in range(3):
        assert books.plan().decode == ("a", "b")
        books.advance({"a": [1], "b": [1]})
    plan = books.plan()
    assert plan.preempted == plan.joining == ("b",)
    assert plan.prefill == plan.grown == ()
    assert plan.decode == ("a", "b")
    assert len(books.pages_of("b")) == 4
    assert books.pages_of("a")[:2] == books.pages_of("b")[:2]


def test_fewer_steps_are_launched_before_anybody_is_preempted() -> None:
    books = scheduler(pages=3, page_tokens=4, steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=7))
    books.submit(request("b", 4, max_tokens=7))
    plan = books.plan()
    assert (plan.decode, plan.steps, plan.preempted) == (("a", "b"), 1, ())


def test_a_launch_is_no_shorter_than_pages_ask_for() -> None:
    books = scheduler(5, page_tokens=4, steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=12))
    books.submit(request("b", 4, max_tokens=12))
    plan = books.plan()
    # Eight steps would take two more pages each, four steps take one, and three are left.
    assert (plan.decode, plan.steps) == (("a", "b"), 4)
    assert [len(books.pages_of(name)) for name in "ab"] == [2, 2]


def test_a_prompt_longer_than_the_model_is_refused_with_both_numbers() -> None:
    books = scheduler(max_model_len=64)
    with pytest.raises(PromptTooLong, match=r"has 64 tokens and at most 63 fit.*model") as caught:
        books.submit(request("a", 64))
    assert caught.value.code == "OST5002"
    books.submit(request("b", 63))
    assert books.budget_of("b") == 1


def test_a_prompt_that_all_pages_could_not_hold_is_refused_with_both_numbers() -> None:
    books = scheduler(pages=4)
    with pytest.raises(PromptTooLong, match=r"has 64 tokens and at most 63 fit.*all 4 pages"):
        books.submit(request("a", 64))


def test_the_answer_is_cut_to_what_the_model_holds() -> None:
    pretend = engine(Limits(max_model_len=30), pages=40)
    pretend.submit(request("a", 20, max_tokens=100))
    pretend.run()
    answer = pretend.answers["a"]
    assert (len(answer.tokens), answer.reason) == (10, FinishReason.LENGTH)


def test_a_full_queue_refuses_with_the_numbers_and_takes_again_when_there_is_room() -> None:
    books = scheduler(max_waiting=2, max_batch=1)
    books.submit(request("a", 4))
    books.submit(request("b", 5))
    with pytest.raises(QueueFull, match="2 of 2 requests and 9 of") as caught:
        books.submit(request("c", 4))
    assert caught.value.code == "OST5101"
    books.plan()
    books.submit(request("c", 4))


def test_a_queue_is_full_in_tokens_too_but_never_for_one_prompt_alone() -> None:
    books = scheduler(max_waiting_tokens=10)
    books.submit(request("a", 30))
    with pytest.raises(QueueFull, match="30 of 10 prompt tokens wait, and this prompt has 1"):
        books.submit(request("b", 1))


def test_a_preempted_request_needs_no_room_in_the_queue() -> None:
    pretend = engine(
        Limits(page_tokens=4, steps_per_launch=1, max_waiting=2), pages=8, prefix=False
    )
    pretend.submit(request("first", 11, max_tokens=16))
    pretend.submit(request("second", 8, 12, first=500))
    pretend.step()
    pretend.submit(request("third", 30, 2))
    pretend.submit(request("fourth", 30, 2))
    pretend.run()
    assert pretend.scheduler.counts().preemptions == 1


def test_two_living_requests_cannot_share_a_name_but_a_name_can_be_used_again() -> None:
    books = scheduler()
    books.submit(request("a", 4))
    with pytest.raises(UsageError, match="'a' is still running") as caught:
        books.submit(request("a", 4))
    assert caught.value.code == "OST5008"
    books.cancel("a")
    books.submit(request("a", 4))


def test_tokens_under_way_for_a_cancelled_request_do_not_reach_the_next_of_its_name() -> None:
    books = scheduler()
    books.submit(request("a", 4))
    books.plan()
    books.cancel("a")
    books.submit(request("a", 5))
    books.advance({"a": [1, 2, 3]})
    assert books.tokens_of("a") == request("a", 5).prompt_ids


def test_cancel_frees_row_and_pages_at_once_and_says_whether_there_was_anything() -> None:
    books = scheduler(pages=10)
    books.submit(request("a", 60))
    books.plan()
    assert books.counts().available_pages < 10
    assert books.cancel("a")
    assert not books.cancel("a")
    assert not books.cancel("unheard of")
    assert books.counts().available_pages == 10
    assert books.counts().running == 0


def test_the_lowest_free_row_is_taken_first() -> None:
    books = scheduler()
    for name in "abc":
        books.submit(request(name, 4))
    books.plan()
    books.advance({}, {"b": FinishReason.STOP})
    books.submit(request("d", 4))
    books.plan()
    assert [books.row_of(name) for name in "acd"] == [0, 2, 1]


def test_a_second_plan_counts_on_all_tokens_of_the_first() -> None:
    books = scheduler(page_tokens=4, steps_per_launch=4)
    books.submit(request("a", 4, max_tokens=9))
    assert (books.plan().steps, len(books.pages_of("a"))) == (4, 2)
    plan = books.plan()
    assert (plan.steps, plan.grown, len(books.pages_of("a"))) == (4, ("a",), 3)
    assert books.plan().steps == 1
    assert books.plan().is_empty
    assert books.advance({"a": [1, 2, 3, 4]}) == {}
    assert books.advance({"a": [5]}) == {}  # It ended early: the rest may still come.
    assert books.plan().steps == 3


def test_a_request_whose_budget_is_used_up_is_over_without_being_told() -> None:
    books = scheduler()
    books.submit(request("a", 4, max_tokens=2))
    books.plan()
    assert books.advance({"a": [1, 2]}) == {"a": FinishReason.LENGTH}
    assert books.is_idle


def test_a_stop_on_the_last_token_is_a_stop() -> None:
    books = scheduler()
    books.submit(request("a", 4, max_tokens=2))
    books.plan()
    assert books.advance({"a": [1, 2]}, {"a": FinishReason.STOP}) == {"a": FinishReason.STOP}


def test_a_row_with_a_grammar_runs_one_step_while_the_others_keep_theirs() -> None:
    books = scheduler(steps_per_launch=8)
    books.submit(request("free", 4, max_tokens=20))
    books.submit(request("bound", 4, max_tokens=20, schema={"type": "object"}))
    plan = books.plan()
    assert (plan.decode, plan.steps, plan.single) == (("free", "bound"), 8, frozenset({"bound"}))
    assert books.plan().decode == ("free",)  # Its next token needs the one under way.
    books.advance({"free": [1] * 8, "bound": [1]})
    assert books.plan().decode == ("free", "bound")


def test_prompts_that_begin_alike_share_pages_once_these_are_written() -> None:
    books = scheduler(prefix=True)
    books.submit(request("a", 40))
    books.plan()
    books.submit(request("same, too soon", 40))
    books.plan()
    books.advance({})
    books.submit(request("same", 40))
    plan = books.plan()
    assert plan.prefill == (Chunk("same", 32, 7, is_last=True),)
    assert books.pages_of("same")[:2] == books.pages_of("a")[:2]
    assert books.cached_tokens("same") == 32
    assert books.cached_tokens("same, too soon") == 0
    books.check_integrity()


def test_the_page_of_the_newest_token_is_never_shared() -> None:
    books = scheduler(prefix=True)
    books.submit(request("a", 33))
    books.plan()
    books.advance({})
    books.submit(request("b", 32))
    assert books.plan().prefill == (Chunk("b", 16, 15, is_last=True),)


def test_answers_are_shared_as_prompts_are() -> None:
    books = scheduler(prefix=True, page_tokens=4)
    books.submit(request("a", 4, max_tokens=5))
    books.plan()
    books.advance({"a": [1, 2, 3, 4, 5]})
    books.submit(Request("b", (*request("a", 4).prompt_ids, 1, 2, 3, 4, 9)))
    books.plan()
    assert books.cached_tokens("b") == 8


def test_what_a_failed_request_computed_is_not_found_by_others() -> None:
    books = scheduler(prefix=True)
    books.submit(request("a", 40))
    books.plan()
    books.advance({"a": [1, 2]}, {"a": FinishReason.ERROR})
    assert books.counts().idle_pages == 0
    books.submit(request("b", 40))
    books.plan()
    assert books.cached_tokens("b") == 0


def test_a_failed_request_does_not_hide_what_another_wrote_of_the_same_prompt() -> None:
    books = scheduler(prefix=True, steps_per_launch=1)
    books.submit(request("failing", 33))
    books.submit(request("sound", 33))
    assert books.plan().decode == ("failing", "sound")
    books.advance({"sound": [1]}, {"failing": FinishReason.ERROR})
    books.submit(request("next", 33))
    books.plan()
    assert books.cached_tokens("next") == 32
    assert books.pages_of("next")[:2] == books.pages_of("sound")[:2]


def test_restart_sends_all_back_to_be_prefilled_with_what_they_have() -> None:
    books = scheduler(prefix=True)
    books.submit(request("a", 40))
    books.plan()
    books.advance({"a": [1, 2]})
    assert books.restart() == ("a",)
    assert books.plan().prefill == (Chunk("a", 0, 41, is_last=True),)
    assert books.tokens_of("a")[-2:] == (1, 2)


def test_after_forgetting_prefixes_nothing_old_is_found_or_added() -> None:
    books = scheduler(prefix=True)
    books.submit(request("a", 40, max_tokens=100))
    books.plan()
    books.advance({})
    books.forget_prefixes()
    books.plan()
    books.advance({"a": [1] * 8})
    books.plan()
    books.advance({"a": [1] * 8})  # Three full pages, of which the third is new.
    books.submit(request("b", 40))
    books.plan()
    books.advance({})
    assert books.cached_tokens("b") == 0
    books.submit(Request("c", books.tokens_of("a")))
    books.plan()
    assert books.cached_tokens("c") == 32
    books.check_integrity()


def test_a_request_sent_back_waits_for_the_tokens_under_way_and_keeps_them() -> None:
    books = scheduler()
    books.submit(request("a", 40))
    books.plan()
    books.restart()
    assert books.plan().is_empty
    books.advance({"a": [1, 2]})
    assert books.counts().waiting_tokens == 42
    assert books.plan().prefill == (Chunk("a", 0, 41, is_last=True),)


def test_news_of_an_earlier_stay_does_not_make_pages_of_this_one_known() -> None:
    books = scheduler(prefix=True, prefill_tokens=32)
    books.submit(request("a", 60))
    assert books.plan().prefill == (Chunk("a", 0, 32, is_last=False),)
    books.restart()
    books.submit(request("urgent", 60, first=500, priority=-1))
    assert {c.request_id: c.count for c in books.plan().prefill} == {"urgent": 16, "a": 16}
    books.advance({})
    books.cancel("urgent")
    books.submit(request("same", 60))
    books.plan()
    assert books.counts().running == 2
    assert books.cached_tokens("same") == 0
    books.advance({})
    books.check_integrity()


def test_a_newcomer_is_not_admitted_into_the_page_that_a_running_request_may_need() -> None:
    books = scheduler(pages=3, page_tokens=4, steps_per_launch=1)
    books.submit(request("a", 2, max_tokens=5))
    books.plan()
    books.advance({"a": [1]})
    books.submit(request("b", 8, max_tokens=1))
    assert books.plan().decode == ("a",)
    books.cancel("b")
    books.submit(request("c", 4, max_tokens=1))
    assert books.plan().decode == ("a", "c")


def test_no_page_is_granted_beyond_a_budget() -> None:
    books = scheduler(page_tokens=4, steps_per_launch=8)
    books.submit(request("short", 4, max_tokens=1))
    books.submit(request("long", 4, max_tokens=20))
    assert books.plan().steps == 8
    assert (len(books.pages_of("short")), len(books.pages_of("long"))) == (1, 3)


def test_an_idle_scheduler_plans_nothing() -> None:
    pretend: PretendEngine = engine(Limits(), pages=4)
    assert pretend.scheduler.plan().is_empty
    assert pretend.scheduler.is_idle


def test_two_newcomers_of_one_plan_do_not_take_each_other_the_next_page() -> None:
    books = scheduler(pages=3, page_tokens=4, steps_per_launch=1)
    books.submit(request("a", 4, max_tokens=3))
    books.submit(request("b", 8, max_tokens=1))
    assert books.plan().decode == ("a",)


def test_tokens_that_come_late_from_a_launch_cut_short_are_booked() -> None:
    books = scheduler(steps_per_launch=8)
    books.submit(request("a", 4, max_tokens=8))
    books.submit(request("b", 4, max_tokens=30))
    assert books.plan().decode == ("a", "b")
    assert books.plan().decode == ("b",)  # all of a's tokens are thought to be under way
    assert books.advance({"a": [1, 2, 3], "b": [1, 2, 3]}) == {}
    assert books.advance({"a": [4, 5, 6], "b": [4, 5, 6, 7]}) == {}
    assert books.plan().decode == ("a", "b")
    assert books.tokens_of("a") == (100, 101, 102, 103, 1, 2, 3, 4, 5, 6)
    assert books.advance({"a": [7, 8]}) == {"a": FinishReason.LENGTH}


def test_a_page_that_a_request_shared_before_its_error_is_found_no_more() -> None:
    books = scheduler(prefill_tokens=16, prefix=True)
    books.submit(request("a", 50))
    for _ in range(3):
        assert not books.plan().decode
        books.advance({})
    assert books.plan().decode == ("a",)
    books.advance({}, {"a": FinishReason.ERROR})
    assert books.counts().available_pages == 100
    assert books.counts().idle_pages == 0
    books.check_integrity()
    books.submit(request("b", 50))
    books.plan()
    assert books.cached_tokens("b") == 0


def test_room_is_asked_for_all_who_will_follow_and_not_asked_again() -> None:
    books = scheduler(max_waiting=3)
    with pytest.raises(QueueFull):
        books.submit(request("a", 4), room_for=4)
    with pytest.raises(QueueFull):
        books.check_room(request("a", 4), room_for=4)
    books.check_room(request("a", 4), room_for=3)
    assert not books.is_living("a")
    for name in "abc":
        books.submit(request(name, 4))
    with pytest.raises(QueueFull):
        books.submit(request("d", 4))
    books.submit(request("d", 4), room_for=0)
    assert books.counts().waiting == 4


def test_a_name_or_a_length_that_is_refused_is_refused_when_only_asked() -> None:
    books = scheduler()
    books.submit(request("a", 4))
    with pytest.raises(UsageError, match="'a' is still running"):
        books.check_room(request("a", 4))
    with pytest.raises(PromptTooLong):
        books.check_room(request("b", 5000))


def test_a_launch_that_brings_a_first_token_is_short() -> None:
    books = scheduler(steps_per_launch=8, newcomer_steps=1)
    books.submit(request("a", 4, max_tokens=30))
    assert books.plan().steps == 1
    assert books.plan().steps == 8
    books.submit(request("b", 4, max_tokens=30))
    assert books.plan().steps == 1
    assert books.plan().steps == 8


def test_with_many_rows_a_launch_that_brings_a_first_token_is_less_short() -> None:
    books = scheduler(pages=900, steps_per_launch=8, newcomer_steps=1, max_batch=200)
    for at in range(200):
        books.submit(request(f"r{at}", 1, max_tokens=30, first=at))
    assert books.plan().steps == 2


def test_a_request_that_comes_back_has_its_first_token() -> None:
    books = scheduler(steps_per_launch=8, newcomer_steps=1)
    books.submit(request("a", 4, max_tokens=30))
    books.plan()
    books.advance({"a": [1]})
    books.restart()
    plan = books.plan()
    assert (plan.joining, plan.steps) == (("a",), 8)
