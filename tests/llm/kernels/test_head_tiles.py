"""The head by tiles: who leads in each tile is who leads in the product's own logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from llm.kernels.sampling_case import POSITION, running

pytest.importorskip("triton")

from ostinato.llm.kernels.head_tiles import TILE, HeadPlan, head_tiles, logit_tiles
from ostinato.llm.kernels.settling import settle
from ostinato.llm.kernels.tiled_rows import Weighed, scaled_plain
from ostinato.llm.kernels.weighing import weigh
from ostinato.llm.sampling_draws import noise

SMALL = HeadPlan(rows=16, depth=32, warps=4, stages=2)
KINDS: list[dict[str, Any]] = [{"temperature": 0}, {}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}]


def exact(rows: int, hidden: int, vocabulary: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Hidden states and weights whose product every order of adding gives to the bit."""
    hidden_BE = torch.randint(-4, 5, (rows, hidden)).to(device, torch.float32)
    weight_VE = torch.randint(-4, 5, (vocabulary, hidden)).to(device, torch.float32)
    return hidden_BE, weight_VE


def same_leaders(found: Any, wanted: Any, *, draws: bool) -> None:
    assert torch.equal(found.best_BT, wanted.best_BT)
    assert torch.equal(found.token_BT, wanted.token_BT)
    if draws:
        assert torch.equal(found.run_BT, wanted.run_BT)
        assert torch.equal(found.runner_BT, wanted.runner_BT)


@pytest.mark.parametrize(
    ("rows", "hidden", "vocabulary"), [(1, 32, 128), (5, 64, 300), (17, 48, 129), (35, 32, 5)]
)
@pytest.mark.parametrize("draws", [False, True], ids=["greedy", "drawn"])
def test_the_leaders_are_those_of_the_written_logits(
    rows: int, hidden: int, vocabulary: int, draws: bool, kernel_device: torch.device
) -> None:
    hidden_BE, weight_VE = exact(rows, hidden, vocabulary, kernel_device)
    state = running([{"temperature": 0.7}] * rows, vocabulary, kernel_device)
    logits = torch.nn.functional.linear(hidden_BE, weight_VE)
    wanted = logit_tiles(logits, state, draws=draws)
    found, _ = head_tiles(hidden_BE, weight_VE, state, plan=SMALL, draws=draws)
    same_leaders(found, wanted, draws=draws)


@pytest.mark.parametrize("ahead", [0, 1, 2, 3])
@pytest.mark.parametrize(("rows", "hidden"), [(1, 96), (5, 80), (17, 48)])
def test_tokens_that_come_weighed_are_normed_in_passing(
    rows: int, hidden: int, ahead: int, kernel_device: torch.device
) -> None:
    plan = HeadPlan(rows=16, depth=32, warps=4, stages=2, ahead=ahead)
    x_BE, weight_VE = exact(rows, hidden, 300, kernel_device)
    squares_PB = torch.rand(3, rows, device=kernel_device) * hidden
    weighed = Weighed(x_BE, squares_PB, 0.5)
    state = running([{"temperature": 0.7}] * rows, 300, kernel_device)
    scale_B1 = torch.rsqrt(squares_PB.sum(0) / hidden + 0.5)[:, None]
    logits = torch.nn.functional.linear(x_BE, weight_VE) * scale_B1
    assert_close(logits, torch.nn.functional.linear(scaled_plain(weighed), weight_VE))
    wanted = logit_tiles(logits, state, draws=True)
    found, _ = head_tiles(weighed, weight_VE, state, plan=plan, draws=True)
    assert_close(found.best_BT, wanted.best_BT)
    assert_close(found.run_BT, wanted.run_BT)
    # Products are exact, and a scale keeps their order.
    assert torch.equal(found.token_BT, wanted.token_BT)


def test_logits_are_rounded_to_the_type_of_the_weights_before_anything_looks(
    kernel_device: torch.device,
) -> None:
    # 2049 and 2048 are one number in float16, so the lower id leads.
    hidden_BE = torch.tensor([[2048.0, 1.0] + [0.0] * 30], device=kernel_device).half()
    weight_VE = torch.zeros(6, 32, device=kernel_device).half()
    weight_VE[2, 0] = 1
    weight_VE[4, :2] = 1
    state = running([{"temperature": 0}], 6, kernel_device)
    leaders, _ = head_tiles(hidden_BE, weight_VE, state, plan=SMALL, draws=False)
    assert leaders.token_BT.tolist() == [[2]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_in_half_precision_are_near_those_in_double(
    dtype: torch.dtype, kernel_device: torch.device
) -> None:
    if dtype == torch.bfloat16 and kernel_device.type == "cpu":
        pytest.skip("the interpreter multiplies the bits of bfloat16 as whole numbers")
    hidden_BE = torch.randn(3, 160, device=kernel_device).to(dtype)
    weight_VE = torch.randn(260, 160, device=kernel_device).to(dtype)
    state = running([{"temperature": 0}] * 3, 260, kernel_device)
    leaders, _ = head_tiles(hidden_BE, weight_VE, state, plan=SMALL, draws=False)
    logits = hidden_BE.double() @ weight_VE.double().T
    tiles = [tile.amax(-1) for tile in logits.split(TILE, dim=1)]
    assert_close(leaders.best_BT.double(), torch.stack(tiles, 1), rtol=1e-2, atol=1e-2)


def test_of_a_tile_the_first_of_equals_leads_and_a_nan_is_told(kernel_device: torch.device) -> None:
    logits = torch.zeros(3, 400, device=kernel_device)
    logits[0, [7, 9, 130, 399]] = 2.0
    logits[1, 200] = torch.nan
    logits[2] = -torch.inf
    state = running([{"temperature": 0}] * 3, 400, kernel_device)
    leaders = logit_tiles(logits, state, draws=False)
    assert leaders.token_BT[0].tolist() == [7, 130, 256, 399]
    assert leaders.best_BT[1].isnan().tolist() == [False, True, False, False]
    assert leaders.best_BT[2].tolist() == [-torch.inf] * 4
    assert leaders.token_BT[2].tolist() == [0, 128, 256, 384]


def test_the_race_is_run_with_the_noise_of_the_next_position(kernel_device: torch.device) -> None:
    logits = torch.randn(4, 300, device=kernel_device)
    temperature = torch.tensor([1.0, 0.3, 5.0, 1.0], device=kernel_device)
    options = [{"temperature": float(each)} for each in temperature]
    state = running(options, 300, kernel_device, seeds=[3, 3, 8, 2**63])
    leaders = logit_tiles(logits, state, draws=True)
    position = torch.full((4,), POSITION + 1, device=kernel_device)
    run = logits / temperature[:, None] + noise(state.sampling.stream, position, 300)
    for tile, part in enumerate(run.split(TILE, dim=1)):
        assert_close(leaders.run_BT[:, tile], part.amax(-1), rtol=1e-5, atol=1e-5)
        assert torch.equal(leaders.runner_BT[:, tile].long(), part.argmax(-1) + tile * TILE)


def test_logits_are_written_of_rows_that_filter_their_draw_and_of_no_others(
    kernel_device: torch.device,
) -> None:
    hidden_BE, weight_VE = exact(len(KINDS), 32, 200, kernel_device)
    state = running(KINDS, 200, kernel_device)
    empty = torch.Tensor.new_empty

    def poisoned(self: Tensor, *size: int, **options: Any) -> Tensor:
        return empty(self, *size, **options).fill_(77.5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "new_empty", poisoned)
        _, logits = head_tiles(hidden_BE, weight_VE, state, plan=SMALL, draws=True)
    assert logits is not None
    plain = torch.nn.functional.linear(hidden_BE, weight_VE)
    assert (logits[:2] == 77.5).all()
    assert torch.equal(logits[2:], plain[2:])


def test_tokens_chosen_by_tiles_are_those_chosen_from_written_logits(
    kernel_device: torch.device,
) -> None:
    hidden_BE, weight_VE = exact(len(KINDS), 32, 500, kernel_device)
    weight_VE /= 16
    logits = torch.nn.functional.linear(hidden_BE, weight_VE)
    tokens = []
    for is_fused in (False, True):
        state = running(KINDS, 500, kernel_device)
        leaders, seen = logit_tiles(logits, state, draws=True), logits
        if is_fused:
            leaders, written = head_tiles(hidden_BE, weight_VE, state, plan=SMALL, draws=True)
            assert written is not None
            seen = written
        weighed = weigh(seen, leaders, state)
        found = settle(leaders, state, logits_BV=seen, weighed=weighed, keeps_history=False)
        tokens.append(found[0].tolist())
    assert tokens[0] == tokens[1]
