"""The fused end of a step: a row gives what it gives by itself, as it does without Triton."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llm.resident_rows import Asked, Host, SumAttention, hidden_after, ideal
from ostinato.graphs.observe import observe
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling import Level

pytest.importorskip("triton")

KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {},
    {"temperature": 0.8, "top_p": 0.9},
    {"top_k": 5, "presence_penalty": 1.0},
    {"temperature": 0, "repetition_penalty": 1.5, "frequency_penalty": 0.3},
    {"min_tokens": 4, "logit_bias": {9: 4.0}},
]
WIDE = SumAttention(cost_follows_table=False)


def asked(number: int, kind: dict[str, Any], tokens: int = 9) -> Asked:
    ids = tuple((number * 31 + place * 17) % 200 + 1 for place in range(number % 5 + 1))
    params = SamplingParams(max_tokens=tokens, **kind)
    return Asked(ids, params, stop_ids=(9, 30, 77, 120), seed=number)


def host_on(device: torch.device, **options: Any) -> Host:
    # Triton's interpreter writes memory behind the back of the tape.
    backend = "cuda" if device.type == "cuda" else "eager"
    return Host(device, is_fused=True, backend=backend, attention=WIDE, **options)


@pytest.mark.parametrize("steps", [1, 4])
def test_rows_of_every_kind_give_what_they_give_by_themselves(
    steps: int, kernel_device: torch.device
) -> None:
    host = host_on(kernel_device, rows=8)
    requests = {row: asked(row, kind) for row, kind in enumerate(KINDS)}
    for row, request in requests.items():
        host.seat(row, request)
    host.run(steps)
    for row, request in requests.items():
        host.check(row, request)
    assert {"stop", "length"} == set(host.endings.values())


@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[1:3]], ids=["greedy", "drawn"])
def test_rows_that_rest_stay_as_they_are_at_every_level(
    kinds: list[dict[str, Any]], kernel_device: torch.device
) -> None:
    host = host_on(kernel_device, rows=6)
    requests = {}
    for row in (0, 2, 5):
        requests[row] = asked(row, kinds[row % len(kinds)], tokens=row + 1)
        host.seat(row, requests[row])
    host.run(steps=3)
    for row, request in requests.items():
        host.check(row, request)
    for row in (1, 3, 4):
        assert not host.resident.state.place_BF[row].any()


@pytest.mark.parametrize("kind", [{"temperature": 0}, {}, {"top_k": 3}])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_whose_logits_are_no_numbers_ends_in_error_alone(
    bad: float, kind: dict[str, Any], kernel_device: torch.device
) -> None:
    host = host_on(kernel_device, rows=3)
    requests = {row: asked(row + 3, kind, tokens=4) for row in range(3)}
    for row, request in requests.items():
        host.seat(row, request)
    first, _ = ideal(host.decoder, requests[1])
    after = (*requests[1].ids, first[0])
    summed = sum(token * (place % 5 + 1) for place, token in enumerate(after))
    host.decoder.table_VV[(summed * 7 + after[-1]) % 211, 50] = bad
    host.run(steps=4)
    assert (host.answers[1], host.endings[1]) == (first[:1], "error")
    for row in (0, 2):
        host.check(row, requests[row])


def test_log_probabilities_are_those_of_the_plain_step(kernel_device: torch.device) -> None:
    reported = []
    for is_fused in (False, True):
        backend = "cuda" if kernel_device.type == "cuda" else "eager"
        host = Host(kernel_device, is_fused=is_fused, backend=backend, most_logprobs=3)
        host.seat(0, asked(4, {"logprobs": 2, "top_p": 0.8}))
        host.seat(1, asked(5, {"temperature": 0}))
        host.run(steps=4)
        reported.append([each.logprobs for each in host.produced[0]])
    assert reported[0] == reported[1]


def test_first_tokens_of_a_prefill_are_those_of_a_step(kernel_device: torch.device) -> None:
    host = host_on(kernel_device, rows=5)
    requests = {row: asked(row + 1, KINDS[row]) for row in (0, 2, 3)}
    for order in ((2, 0), (3,)):  # the last one's history is of use
        for row in order:
            host.seat(row, requests[row])
            host.cache(row, requests[row].ids[-1:], start=len(requests[row].ids) - 1)
        hidden = torch.stack([hidden_after(requests[row].ids) for row in order])
        host.collect(host.resident.begin(order, hidden.to(kernel_device)))
    host.run(steps=3)
    for row, request in requests.items():
        host.check(row, request)


def test_greedy_and_drawn_rows_need_two_recordings_and_changed_logits_one_more() -> None:
    resident = host_on(torch.device("cpu")).resident
    assert resident.levels == (Level.GREEDY, Level.CUT, Level.FULL)
    served = [resident.level_for([level]) for level in Level]
    assert served == [Level.GREEDY, Level.CUT, Level.CUT, Level.FULL]


@pytest.mark.parametrize(("kind", "level"), [(KINDS[2], Level.CUT), (KINDS[3], Level.FULL)])
def test_a_trial_run_sees_what_the_kernels_write_and_can_put_it_back(
    kind: dict[str, Any], level: Level, kernel_device: torch.device
) -> None:
    host = host_on(kernel_device, rows=2)
    host.seat(0, asked(1, kind))
    host.resident._moves.send()
    state = host.resident.state
    before = [each.clone() for each in (state.place_BF, state.output_BF, state.sampling.whole_BF)]
    with torch.inference_mode():
        seen = observe(lambda: host.resident.step(2, 12, level, False), [], device=kernel_device)
        assert not torch.equal(state.place_BF, before[0])
        seen.restore()
    if kernel_device.type == "cuda":  # the interpreter reads scalars on the host
        assert seen.refusals == []
    after = (state.place_BF, state.output_BF, state.sampling.whole_BF)
    assert all(map(torch.equal, before, after))
