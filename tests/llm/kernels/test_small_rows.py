"""The small operations of a layer, each as one kernel."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from llm.kernels.cases import TOLERANCE, Heads, apart, cached, exact, place_of, random

pytest.importorskip("triton")

from ostinato.llm.kernels.activating import KNOWN
from ostinato.llm.kernels.begin_rows import begin_rows, begin_rows_plain
from ostinato.llm.kernels.gate_rows import gate_rows, gate_rows_plain
from ostinato.llm.kernels.norm_rows import norm_rows, norm_rows_plain
from ostinato.llm.kernels.standing import Standing, stand
from ostinato.llm.kernels.tiled_product_add import NextNorm
from ostinato.llm.kernels.tiled_rows import scaled_plain
from ostinato.llm.kernels.turn_rows import HeadNorms, turn_rows, turn_rows_plain
from ostinato.llm.resident_state import Ending, ResidentState

FP32, FP16 = torch.float32, torch.float16
EARLY = pytest.mark.parametrize("is_early", [False, pytest.param(True, marks=pytest.mark.gpu)])


@EARLY
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 40), (2, 576)])
def test_a_norm_of_a_sum(
    rows: int, size: int, adds: bool, is_early: bool, kernel_device: torch.device
) -> None:
    x, added = (random(rows, size, dtype=FP32, device=kernel_device) for _ in range(2))
    weight = random(size, dtype=FP32, device=kernel_device)
    expected = norm_rows_plain(x, added if adds else None, weight, 1e-5)
    found = norm_rows(x.clone(), added if adds else None, weight, 1e-5, is_early=is_early)
    assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_sum_is_rounded_before_its_norm_and_stays(kernel_device: torch.device) -> None:
    x, added = (random(2, 48, dtype=FP16, device=kernel_device) for _ in range(2))
    weight = random(48, dtype=FP16, device=kernel_device)
    expected = norm_rows_plain(x, added, weight, 1e-5)
    total, normed = norm_rows(x, added, weight, 1e-5, is_early=False)
    assert total is x
    assert torch.equal(total, expected[0])
    assert apart(normed, expected[1]) < 1e-3


@pytest.mark.parametrize("activation", KNOWN)
def test_every_activation_gates(activation: str, kernel_device: torch.device) -> None:
    gate_up = random(3, 2 * 75, dtype=FP32, device=kernel_device) * 3
    found = gate_rows(gate_up, activation, is_early=False)
    assert_close(found, gate_rows_plain(gate_up, activation), rtol=1e-5, atol=1e-5)


@EARLY
@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("heads", [Heads(4, 2, 16), Heads(3, 1, 80), Heads(2, 2, 64)])
def test_heads_are_normed_turned_and_cached(
    heads: Heads, has_norms: bool, is_early: bool, kernel_device: torch.device
) -> None:
    rows = 3
    qkv = random(rows, heads.wide, dtype=FP32, device=kernel_device)
    norms = None
    if has_norms:
        q, k = (random(heads.size, dtype=FP32, device=kernel_device) for _ in range(2))
        norms = HeadNorms(q, k, 1e-5)
    place = place_of(heads, rows, FP32, kernel_device)
    truth = exact(place)
    expected = turn_rows_plain(qkv.double(), heads.q, truth, norms)
    found = turn_rows(qkv, heads.q, place, norms, is_early=is_early)
    assert apart(found, expected) < TOLERANCE[FP32]
    assert apart(cached(place), cached(truth)) < TOLERANCE[FP32]


@EARLY
@pytest.mark.parametrize("number", [torch.int32, torch.int64])
def test_a_step_begins_with_embeddings_and_angles(
    number: torch.dtype, is_early: bool, kernel_device: torch.device
) -> None:
    table = random(20, 48, dtype=FP32, device=kernel_device)
    frequencies = torch.rand(12, device=kernel_device)
    state = torch.tensor([[3, 0], [19, 20_000], [0, 777]], dtype=number, device=kernel_device)
    arguments = (state[:, 0], state[:, 1], table, frequencies, 1.25)
    expected = begin_rows_plain(*arguments)
    found = begin_rows(*arguments, is_early=is_early)
    assert torch.equal(found.x_NE, expected.x_NE)
    assert found.weighed is None
    # An angle of 20,000 has steps of 0.002 in float32; both round it alike.
    assert_close(found.cos_NC, expected.cos_NC, rtol=1e-5, atol=1e-5)
    assert_close(found.sin_NC, expected.sin_NC, rtol=1e-5, atol=1e-5)


@EARLY
@pytest.mark.parametrize("size", [48, 40])
def test_a_step_begins_weighed_for_its_first_norm(
    size: int, is_early: bool, kernel_device: torch.device
) -> None:
    table = random(20, size, dtype=FP16, device=kernel_device)
    norm = NextNorm(random(size, dtype=FP16, device=kernel_device), 1e-5)
    tokens = torch.tensor([3, 19, 0], device=kernel_device)
    arguments = (tokens, tokens, table, torch.rand(12, device=kernel_device), 1.0)
    expected = begin_rows_plain(*arguments, norm=norm).weighed
    found = begin_rows(*arguments, norm=norm, is_early=is_early).weighed
    assert expected is not None
    assert found is not None
    assert torch.equal(found.x_MK, expected.x_MK)
    assert apart(scaled_plain(found), scaled_plain(expected)) < 1e-3


ENDINGS = [Ending.RUNNING, Ending.PAUSED, Ending.RUNNING, Ending.EMPTY, Ending.STOP] * 7


def standing_rows(device: torch.device) -> ResidentState:
    """Rows of every kind, on pages of their own; the first stands at the end of its last page."""
    rows, pages, page_tokens = len(ENDINGS), 3, 8
    state = ResidentState.empty(
        rows,
        vocabulary=20,
        pages=pages,
        page_tokens=page_tokens,
        ring=3,
        most_logprobs=0,
        device=device,
    )
    state.place_BF[:, 0] = torch.arange(rows) % 20
    state.place_BF[:, 1] = torch.arange(rows) * 5 % (pages * page_tokens)
    state.place_BF[0, 1] = pages * page_tokens - 1
    state.output_BF[:, 1] = torch.tensor([int(each) for each in ENDINGS])
    state.pages_BP.copy_(torch.randperm(rows * pages).view(rows, pages) + 1)
    return state


@EARLY
@pytest.mark.parametrize("begins", [False, True])
def test_rows_are_told_their_slots_and_lengths(
    begins: bool, is_early: bool, kernel_device: torch.device
) -> None:
    state = standing_rows(kernel_device)
    if begins:  # in the launch that looks their tokens up
        standing = Standing.of(state, 8)
        table = random(20, 40, dtype=FP32, device=kernel_device)
        frequencies = torch.rand(12, device=kernel_device)
        found = begin_rows(
            *standing.inputs, table, frequencies, 1.0, standing=standing, is_early=is_early
        )
        assert torch.equal(found.x_NE, table[state.token])
        lengths, slots = standing.lengths_B, standing.slots_B
    else:
        lengths, slots = stand(state, 8)
    rests, after = state.standing()
    assert lengths.tolist() == after.masked_fill(rests, 0).tolist()
    page = state.pages_BP.long().gather(1, state.position[:, None] // 8)[:, 0]
    expected = (page * 8 + state.position % 8).masked_fill(rests, 0)
    assert slots.tolist() == expected.tolist()
