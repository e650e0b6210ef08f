"""Warming: what is recorded ahead of its use, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llm.paged_model import PagedModel
from llm.resident_rows import Asked, Host, SumAttention
from ostinato.errors import InternalError
from ostinato.llm.limits import Limits
from ostinato.llm.params import SamplingParams
from ostinato.llm.prefill import Prefiller
from ostinato.llm.resident_seat import Wanted
from ostinato.llm.sampling import Level, level_of
from ostinato.llm.shapes import Shape, ShapeProfile
from ostinato.llm.warming import Warming

LIMITS = Limits(max_batch=4, max_model_len=48, page_tokens=4, prefill_tokens=64)


@pytest.fixture
def prefiller(tiny: Path) -> Prefiller:
    """One that runs eagerly: to warm it is to do nothing."""
    model = PagedModel.load(tiny, is_invariant=True)
    return Prefiller(model.decoder, model.backend, model.store, max_pages=8)


def host_of(**options: object) -> Host:
    attention = SumAttention(cost_follows_table=False)
    return Host(torch.device("cpu"), rows=4, attention=attention, **options)


def recorded(host: Host) -> int:
    return len(host.resident.report().graphs)


def test_a_profile_comes_before_guesses_and_a_cpu_guesses_nothing(prefiller: Prefiller) -> None:
    profile = ShapeProfile()
    profile.note(Shape(rows=2, pages=4, level=int(Level.DRAWN)))
    host = host_of()
    warming = Warming(host.resident, prefiller, LIMITS, profile, is_gpu=False)
    assert warming.warm_one()
    assert (recorded(host), warming.is_done) == (1, False)
    assert not warming.warm_one()
    assert (recorded(host), warming.is_done) == (1, True)


def test_on_a_gpu_every_batch_size_is_recorded_at_every_level_that_recordings_have(
    prefiller: Prefiller,
) -> None:
    host = host_of(levels=(Level.GREEDY, Level.FULL))
    warming = Warming(host.resident, prefiller, LIMITS, None, is_gpu=True)
    while warming.warm_one():
        pass
    assert recorded(host) == 3 * 2  # 1, 2 and 4 rows


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams()])
def test_what_a_launch_has_recorded_is_not_recorded_again(
    prefiller: Prefiller, params: SamplingParams
) -> None:
    host = host_of(levels=(Level.GREEDY, Level.CUT, Level.FULL))
    level = host.resident.level_for([level_of(params)])
    profile = ShapeProfile()
    profile.note(Shape(rows=2, pages=4, level=int(level)))
    profile.note(Shape(rows=4, pages=4, level=int(level)))
    warming = Warming(host.resident, prefiller, LIMITS, profile, is_gpu=False)
    warming.note(Wanted(rows=2, pages=3, level=level_of(params), with_logprobs=False))
    while warming.warm_one():
        pass
    assert recorded(host) == 1
    assert warming.profile.hottest() == [Shape(rows=2, pages=4, level=int(level))]


def test_prompts_that_come_together_are_prepared_for_as_many_as_a_plan_takes(
    prefiller: Prefiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[tuple[int, int]] = []

    def note(tokens: int, chunks: int = 1) -> None:
        prepared.append((tokens, chunks))

    monkeypatch.setattr(prefiller, "warm", note)
    prefiller.buckets = (16, 32, 512)
    limits = Limits(max_batch=1, max_model_len=48, prefill_tokens=5120)
    warming = Warming(host_of().resident, prefiller, limits, None, is_gpu=True)
    while warming.warm_one():
        pass
    assert prepared == [(16, 1), (32, 1), (512, 5), (5120, 41)]


def test_what_gives_first_tokens_is_run_ahead_and_changes_no_row(
    prefiller: Prefiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_of(levels=(Level.GREEDY, Level.CUT, Level.FULL))
    # The last place of a row's ring takes what rows that rest would have given.
    state = host.resident.state
    kept = (state.place_BF, state.output_BF[:, :-1])
    before = [each.clone() for each in kept]
    ran: list[tuple[int, Level]] = []
    end = host.resident.step.end

    def note(state: Any, hidden_SE: Any, level: Level, most_logprobs: int | None) -> None:
        ran.append((len(hidden_SE), level))
        end(state, hidden_SE, level, most_logprobs)

    monkeypatch.setattr(host.resident.step, "end", note)
    warming = Warming(host.resident, prefiller, LIMITS, None, is_gpu=True, begins_in_prefill=True)
    for _ in range(4):  # before anything is recorded: the first request has need of it
        assert warming.warm_one()
    assert ran == [(1, Level.GREEDY), (2, Level.GREEDY), (1, Level.CUT), (2, Level.CUT)]
    assert all(torch.equal(one, other) for one, other in zip(before, kept, strict=True))


def test_where_no_prefill_gives_first_tokens_none_is_run_ahead(
    prefiller: Prefiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_of(levels=(Level.GREEDY, Level.FULL))
    monkeypatch.setattr(host.resident, "warm_begin", lambda *_: pytest.fail("run"))
    warming = Warming(host.resident, prefiller, LIMITS, None, is_gpu=True)
    while warming.warm_one():
        pass


def test_first_tokens_are_not_warmed_while_somebody_sits(prefiller: Prefiller) -> None:
    host = host_of()
    host.seat(0, Asked((1, 2, 3), SamplingParams()))
    with pytest.raises(InternalError, match="taken"):
        host.resident.warm_begin(prefiller.no_hidden(1), Level.GREEDY)
