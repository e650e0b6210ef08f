"""The resident loop: K steps per launch, rows that come and go, the same tokens as one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llm.resident_rows import (
    PAGE_TOKENS,
    Asked,
    Host,
    SumAttention,
    by_row,
    hidden_after,
    ideal,
    logits_after,
)
from ostinato.errors import InternalError, UsageError
from ostinato.graphs.observe import observe
from ostinato.instruments import Captured, Instrument, Replayed
from ostinato.llm.params import SamplingParams
from ostinato.llm.resident import Launch
from ostinato.llm.resident_state import Ending
from ostinato.llm.sampling import Level

CPU = torch.device("cpu")
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {},
    {"temperature": 0.8, "top_p": 0.9},
    {"top_k": 5, "presence_penalty": 1.0},
    {"temperature": 0, "repetition_penalty": 1.5, "frequency_penalty": 0.3},
    {"min_tokens": 4, "logit_bias": {9: 4.0}},
]


def asked(number: int, *, tokens: int = 20, kind: dict[str, Any] | None = None) -> Asked:
    random = Random(number)
    ids = tuple(random.randrange(1, 200) for _ in range(random.randrange(1, 9)))
    options = dict(KINDS[number % len(KINDS)] if kind is None else kind)
    options["min_tokens"] = min(options.get("min_tokens", 0), tokens)
    params = SamplingParams(max_tokens=tokens, **options)
    return Asked(ids, params, stop_ids=(9, 30, 77), seed=number)


WIDE = SumAttention(cost_follows_table=False)
"""One bucket of pages, below Level.FULL."""


class Tally(Instrument):
    def __init__(self) -> None:
        self.replays = self.recordings = 0

    def replayed(self, event: Replayed) -> None:
        self.replays += 1

    def captured(self, event: Captured) -> None:
        self.recordings += 1


# ---------------------------------------------------------------- what rows give


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_every_row_gives_what_it_gives_by_itself(
    steps: int, backend_name: str, device: torch.device
) -> None:
    host = Host(device, backend=backend_name)
    requests = {row: asked(row) for row in range(6)}
    for row, request in requests.items():
        host.seat(row, request)
    host.run(steps)
    for row, request in requests.items():
        host.check(row, request)
    assert {"stop", "length"} == set(host.endings.values())
    assert host.resident.report().reasons == {}


def test_rows_that_come_and_go_between_launches_disturb_nobody() -> None:
    host = Host(CPU, rows=5)
    random = Random(3)
    waiting = [asked(number, tokens=random.randrange(1, 25)) for number in range(40)]
    running: dict[int, Asked] = {}
    for _ in range(400):
        for row in [row for row in running if row in host.endings]:
            host.check(row, running.pop(row))
            host.leave(row)
        for row in range(5):
            if row not in running and waiting and random.random() < 0.6:
                running[row] = waiting.pop()
                host.seat(row, running[row])
        if not running and not waiting:
            return
        if running:
            host.collect(host.resident.launch(random.choice((1, 2, 4, 8))))
    raise AssertionError("some request never ended")


def test_a_request_in_another_row_and_company_draws_the_same_tokens() -> None:
    request = asked(7, kind={"temperature": 1.2, "top_p": 0.95})
    answers = []
    for row, company in ((0, ()), (3, (0, 1)), (7, (0, 2, 5))):
        host = Host(CPU)
        for other in company:
            host.seat(other, asked(other + 20))
        host.seat(row, request)
        host.run(steps=5)
        answers.append(host.answers[row])
    assert answers[0] == answers[1] == answers[2]


def test_a_preempted_request_goes_on_as_if_it_had_not_been() -> None:
    kind = {"presence_penalty": 1.0, "frequency_penalty": 0.5, "min_tokens": 12}
    request = asked(2, tokens=25, kind=kind)
    whole, ending = ideal(Host(CPU).decoder, request)
    host = Host(CPU)
    host.seat(0, request)
    first = host.collect(host.resident.launch(7))[0].tokens
    host.leave(0)
    resumed = Asked(
        request.ids + first, request.params, request.stop_ids, request.seed, produced=len(first)
    )
    host.seat(4, resumed)
    host.run()
    assert [*first, *host.answers[4]] == whole
    assert host.endings[4] == ending


def test_a_launch_is_read_one_behind_while_the_next_is_queued() -> None:
    host = Host(CPU)
    requests = {row: asked(row, tokens=30) for row in range(3)}
    for row, request in requests.items():
        host.seat(row, request)
    behind = host.resident.launch(4)
    for _ in range(8):
        ahead = host.resident.launch(4)
        host.collect(behind)
        behind = ahead
    host.collect(behind)
    for row, request in requests.items():
        host.check(row, request)


def test_seating_many_requests_takes_as_many_copies_as_seating_one() -> None:
    copies: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            copies.append(str(func))
            return func(*args, **(kwargs or {}))

    counts = []
    for rows in (1, 7):
        host = Host(CPU)
        for row in range(rows):
            host.seat(row, asked(row))
        copies.clear()
        with Counting():
            host.resident._moves.send()
        counts.append(sum("index_copy" in name or "index_fill" in name for name in copies))
        host.run()
        for row in range(rows):
            host.check(row, asked(row))
    assert counts[0] == counts[1] > 0


def test_a_row_that_is_left_before_any_launch_never_runs() -> None:
    host = Host(CPU)
    host.seat(0, asked(0))
    host.seat(1, asked(1))
    host.leave(0)
    host.run()
    assert host.answers[0] == []
    assert host.resident.state.ending[0] == Ending.EMPTY
    host.check(1, asked(1))
    host.seat(0, asked(4))
    host.leave(0)
    host.seat(0, asked(5))
    host.run()
    host.check(0, asked(5))


# ---------------------------------------------------------------- endings


def test_the_budget_ends_a_row_after_exactly_its_tokens() -> None:
    for tokens in (1, 2, 8, 9):
        host = Host(CPU)
        host.seat(0, Asked((5,), SamplingParams(max_tokens=tokens)))
        host.run()
        assert len(host.answers[0]) == tokens
        assert host.endings[0] == "length"


def test_a_stop_id_ends_a_row_with_that_token_even_as_its_last_one() -> None:
    probe = asked(1, tokens=6, kind={"temperature": 0})
    tokens = ideal(Host(CPU).decoder, Asked(probe.ids, probe.params))[0]
    for at in (0, 3, 5):
        host = Host(CPU)
        host.seat(0, Asked(probe.ids, probe.params, stop_ids=(tokens[at],)))
        host.run()
        first = tokens.index(tokens[at])
        assert host.answers[0] == tokens[: first + 1]
        assert host.endings[0] == "stop"


def test_min_tokens_holds_every_stop_off() -> None:
    host = Host(CPU)
    params = SamplingParams(max_tokens=30, min_tokens=11, temperature=3.0)
    request = Asked((4, 4), params, stop_ids=tuple(range(32)), seed=4)
    host.seat(0, request)
    host.run()
    assert not set(host.answers[0][:11]) & set(request.stop_ids)
    assert host.endings[0] == "stop"
    host.check(0, request)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_logits_that_are_no_numbers_end_their_row_alone(
    kind: dict[str, Any], backend_name: str, device: torch.device
) -> None:
    host = Host(device, backend=backend_name)
    healthy, doomed = asked(8, kind=kind), Asked((3, 1), SamplingParams(max_tokens=20, **kind))
    tokens, _ = ideal(host.decoder, doomed)
    ids = [*doomed.ids, *tokens[:2]]
    summed = sum(token * (place % 5 + 1) for place, token in enumerate(ids))
    host.decoder.table_VV[(summed * 7 + ids[-1]) % len(host.decoder.table_VV), 17] = torch.nan
    host.seat(0, doomed)
    host.seat(1, healthy)
    host.run(3)
    assert (host.answers[0], host.endings[0]) == (tokens[:2], "error")
    host.check(1, healthy)


def test_a_finished_row_gives_nothing_more_and_writes_no_page() -> None:
    host = Host(CPU)
    host.seat(0, asked(0, tokens=2))
    host.seat(1, asked(1, tokens=30, kind={}))
    host.collect(host.resident.launch(4))
    before = host.store.values.clone()
    mine = host.store.values[0, host._pages[0]].clone()
    gave = host.collect(host.resident.launch(4))
    assert gave[0].tokens == ()
    assert gave[0].finish is not None
    assert torch.equal(host.store.values[0, host._pages[0]], mine)
    assert not torch.equal(host.store.values, before)  # the other row went on


def test_a_row_that_left_while_it_ran_reads_as_aborted_and_gives_nothing_more() -> None:
    host = Host(CPU)
    host.seat(0, asked(0, tokens=30))
    host.seat(1, asked(1, tokens=30))
    host.collect(host.resident.launch(2))
    host.leave(0)
    assert set(host.collect(host.resident.launch(2))) == {1}
    host.seat(0, asked(4))
    host.run()
    host.check(0, asked(4))
    host.check(1, asked(1, tokens=30))


# ---------------------------------------------------------------- the first token


def test_what_a_prefill_computed_gives_the_first_token_and_the_row_goes_on(
    backend_name: str, device: torch.device
) -> None:
    host = Host(device, backend=backend_name)
    requests = {row: asked(row) for row in (1, 2, 5)}
    for row, request in requests.items():
        host.seat(row, request)
        host.cache(row, request.ids[-1:], start=len(request.ids) - 1)
    order = (5, 1, 2)
    hidden = torch.stack([hidden_after(requests[row].ids) for row in order]).to(device)
    begun = host.collect(host.resident.begin(order, hidden))
    assert all(len(gave.tokens) == 1 for gave in begun.values())
    host.run(3)
    for row, request in requests.items():
        host.check(row, request)


def test_a_row_may_end_at_its_first_token() -> None:
    host = Host(CPU)
    host.seat(3, asked(0, tokens=1))
    host.cache(3, asked(0).ids[-1:], start=len(asked(0).ids) - 1)
    host.collect(host.resident.begin([3], hidden_after(asked(0).ids)[None]))
    host.check(3, asked(0, tokens=1))
    assert host.resident.launch(3).wait().tokens[3] == ()


# ---------------------------------------------------------------- log probabilities


def test_each_row_gets_the_log_probabilities_it_asked_for(
    backend_name: str, device: torch.device
) -> None:
    host = Host(device, backend=backend_name, most_logprobs=5)
    wanted = {0: 3, 1: None, 2: 0, 3: 5}
    requests = {
        row: asked(row, kind={"logprobs": most, "temperature": 0.9, "top_k": 20})
        for row, most in wanted.items()
    }
    for row, request in requests.items():
        host.seat(row, request)
    host.run(3)
    for row, request in requests.items():
        host.check(row, request)
        ids = list(request.ids)
        for gave in host.produced[row]:
            assert (gave.logprobs is None) == (wanted[row] is None)
            for token, found in zip(gave.tokens, gave.logprobs or (), strict=False):
                exact = logits_after(host.decoder, ids).double().log_softmax(-1).cpu()
                assert found.chosen == pytest.approx(float(exact[token]), abs=1e-5)
                top = exact.topk(wanted[row] or 0)
                assert [each for each, _ in found.top] == top.indices.tolist()
                assert [log for _, log in found.top] == pytest.approx(top.values.tolist(), abs=1e-5)
                ids.append(token)
        if wanted[row] is not None:
            assert len(ids) == len(request.ids) + len(host.answers[row])


# ---------------------------------------------------------------- golden: the structure of a launch


def test_a_launch_of_k_steps_is_k_replays_of_one_recording(
    backend_name: str, device: torch.device, listen: Any
) -> None:
    host = Host(device, backend=backend_name, attention=WIDE)
    host.seat(0, Asked((5,), SamplingParams(max_tokens=40)))
    host.collect(host.resident.launch(1))
    tally = Tally()
    listen(tally)
    for steps in (1, 4, 8):
        before = tally.replays
        assert host.resident.launch(steps).steps == steps
        assert tally.replays - before == steps
    assert tally.recordings == 0


def test_the_recorded_step_has_a_fixed_number_of_nodes() -> None:
    """A change here is a change of every decode step's cost: say so where changes are told."""
    host = Host(CPU, most_logprobs=4)
    nodes = {}
    for level in Level:
        for with_logprobs in (False, True):
            host.resident.warm(2, 2, level, with_logprobs=with_logprobs)
            nodes[level.name, with_logprobs] = host.resident.report().graphs[-1].nodes
    assert nodes == GOLDEN_NODES


GOLDEN_NODES = {
    ("GREEDY", False): 51,
    ("GREEDY", True): 61,
    ("DRAWN", False): 110,
    ("DRAWN", True): 120,
    ("CUT", False): 187,
    ("CUT", True): 197,
    ("FULL", False): 230,
    ("FULL", True): 240,
}


def test_a_whole_launch_reads_nothing_on_the_host() -> None:
    host = Host(CPU, attention=WIDE)
    for row in range(4):
        host.seat(row, asked(row, tokens=30, kind={}))
    host.collect(host.resident.launch(1))
    launches: list[Launch] = []
    seen = observe(lambda: launches.append(host.resident.launch(6)), [], device=CPU)
    assert seen.refusals == []
    assert all(len(gave.tokens) == 6 or gave.finish for gave in by_row(launches[0].wait()).values())


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_whole_launch_never_waits_for_the_gpu() -> None:
    host = Host(torch.device("cuda:0"))
    for row in range(4):
        host.seat(row, asked(row, tokens=40))
    host.collect(host.resident.launch(1))
    host.collect(host.resident.launch(8))
    try:
        torch.cuda.set_sync_debug_mode("error")
        host.resident.leave(3)
        host.resident.join(
            3, [5, 6], SamplingParams(), prompt_tokens=2, stop_ids=[1], seed=1, left=9
        )
        host.resident.set_pages(3, [1, 2, 3])
        launches = [host.resident.launch(2) for _ in range(3)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(launch.wait().tokens for launch in launches)


def test_only_buckets_and_the_level_make_a_new_recording(
    backend_name: str, device: torch.device, listen: Any
) -> None:
    host = Host(device, rows=6, backend=backend_name, max_pages=5, attention=WIDE)
    tally = Tally()
    for rows in (1, 2, 4, 6):
        for level in (Level.GREEDY, Level.DRAWN):
            host.resident.warm(rows, 1, level)
    listen(tally)
    for number in range(24):
        row = number % 6
        if row in host.answers:
            host.leave(row)
        kind = {"temperature": 0} if number % 5 == 0 else {"temperature": 0.1 * number}
        host.seat(row, asked(number, tokens=6, kind=kind))
        host.collect(host.resident.launch(3))
    report = host.resident.report()
    assert (tally.recordings, report.recaptures, report.reasons) == (0, 0, {})
    assert tally.replays > 24


def test_one_level_for_all_leaves_rows_and_pages_as_the_only_keys(listen: Any) -> None:
    host = Host(CPU, levels=(Level.FULL,), rows=2)
    host.resident.warm(2, 4, Level.FULL)
    tally = Tally()
    listen(tally)
    for number, kind in enumerate(KINDS):
        request = Asked(
            tuple(range(1, 14)), SamplingParams(max_tokens=3, **kind | {"min_tokens": 0})
        )
        host.seat(1, request)
        host.run(3)
        host.check(1, request)
        host.leave(1)
        assert tally.recordings == 0, number


def test_warming_changes_no_row() -> None:
    host = Host(CPU)
    host.seat(0, asked(3))
    host.collect(host.resident.launch(2))
    for level in Level:
        host.resident.warm(4, 8, level)
    host.run()
    host.check(0, asked(3))


# ---------------------------------------------------------------- ends early


def test_on_a_cpu_a_launch_ends_when_every_row_has() -> None:
    host = Host(CPU)
    host.seat(0, asked(0, tokens=2, kind={}))
    host.seat(1, Asked((5,), SamplingParams(max_tokens=3)))
    launch = host.resident.launch(8)
    assert launch.steps <= 3
    host.collect(launch)
    assert set(host.endings) == {0, 1}


def test_hurried_launches_run_one_step_until_somebody_looks_who_waits(
    backend_name: str, device: torch.device
) -> None:
    host = Host(device, backend=backend_name)
    request = asked(1, tokens=30, kind={"logit_bias": dict.fromkeys((9, 30, 77), -100.0)})
    host.seat(0, request)
    host.resident.warm(1, 12)
    host.resident.hurry()
    hurried = [host.resident.launch(8), host.resident.launch(8)]
    assert [len(host.collect(launch)[0].tokens) for launch in hurried] == [1, 1]
    host.resident.heed()
    assert len(host.collect(host.resident.launch(8))[0].tokens) == 8
    host.run()
    host.check(0, request)


def test_steps_that_a_hurried_launch_left_out_need_no_pages_later(
    backend_name: str, device: torch.device
) -> None:
    host = Host(device, backend=backend_name)
    request = Asked((5,), SamplingParams(max_tokens=40))
    host.seat(0, request)
    host.resident.hurry()
    for _ in range(6):
        host.collect(host.resident.launch(8))
    host.resident.heed()
    host.resident.set_pages(0, host._pages[0][:4])  # 6 tokens gone on from, 8 to come: 4 pages
    assert len(host.collect(host.resident.launch(8))[0].tokens) == 8
    host.resident.set_pages(0, host._pages[0][4:], start=4)
    assert host.resident.granted(0) == len(host._pages[0])
    host.run()
    host.check(0, request)


# ---------------------------------------------------------------- misuse


def test_too_few_pages_are_refused_before_anything_runs() -> None:
    host = Host(CPU)
    request = asked(0, tokens=20, kind={})
    host.seat(0, request)
    host.resident.set_pages(0, host._pages[0][: -(-len(request.ids) // PAGE_TOKENS)])
    with pytest.raises(InternalError, match=r"needs \d+ pages for 8 steps and has") as caught:
        host.resident.launch(8)
    assert caught.value.code == "OST5131"
    host.resident.set_pages(0, host._pages[0])
    host.run()
    host.check(0, request)


def test_what_the_loop_cannot_do_is_refused_with_the_numbers() -> None:
    host = Host(CPU, rows=2, ring=4, max_pages=3, most_logprobs=2)
    with pytest.raises(InternalError, match="without rows"):
        host.resident.launch(1)
    host.seat(0, asked(0, tokens=2))
    for steps in (0, 5):
        with pytest.raises(InternalError, match=f"{steps} steps, the ring holds 4"):
            host.resident.launch(steps)
    for row in (0, 2, -1):
        with pytest.raises(InternalError, match=f"row {row} is taken"):
            host.seat(row, asked(1, tokens=2))
    with pytest.raises(InternalError, match="16 tokens to cache, a row holds 12"):
        host.seat(1, Asked((1,), SamplingParams(max_tokens=16)))
    with pytest.raises(InternalError, match="3 log probabilities asked for, the ring holds 2"):
        host.seat(1, Asked((1,), SamplingParams(max_tokens=2, logprobs=3)))
    with pytest.raises(InternalError, match="row 1 is empty"):
        host.resident.leave(1)
    with pytest.raises(InternalError, match="not all taken"):
        host.resident.begin([0, 1], torch.zeros(2, 1))


def test_a_request_that_sampling_refuses_leaves_its_row_empty() -> None:
    host = Host(CPU)
    with pytest.raises(UsageError, match="OST5021"):
        host.seat(0, Asked((1,), SamplingParams(max_tokens=2, logit_bias={5000: 1.0})))
    host.seat(0, asked(2))
    host.run()
    host.check(0, asked(2))
