"""The head of one row: who leads is who leads in the product of the normed row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from llm.kernels.cases import fenced, random
from llm.kernels.sampling_case import running

pytest.importorskip("triton")

from ostinato.llm.kernels.early import can_begin_early
from ostinato.llm.kernels.few_head import FewHeadPlan, few_head
from ostinato.llm.kernels.head_tiles import Leaders
from ostinato.llm.kernels.settling import settle
from ostinato.llm.kernels.tiled_product_add import NextNorm
from ostinato.llm.sampling_fused import few_head_plan

FP32, EPS = torch.float32, 1e-5
EARLY = pytest.mark.parametrize("is_early", [False, pytest.param(True, marks=pytest.mark.gpu)])
# Columns in several chunks, the last not full, and in one; programs with several turns, with one,
# and more of them than there is work for.
PLANS = pytest.mark.parametrize(
    "plan",
    [
        FewHeadPlan(4, 16, 1, 3),
        FewHeadPlan(2, 32, 2, 64, is_spread=True),
        FewHeadPlan(8, 64, 1, 1000),
    ],
)


def chosen(leaders: Leaders, vocabulary: int) -> int:
    """The token that the step takes."""
    state = running([{"temperature": 0}], vocabulary, leaders.best_BT.device)
    token, _ = settle(leaders, state, logits_BV=None, weighed=None, keeps_history=False)
    return int(token)


def leaders_of(logits: Tensor, plan: FewHeadPlan) -> tuple[list[float], list[int]]:
    """The largest logit of each program's rows, and the first token that has it."""
    groups = logits.split(plan.outputs)
    programs = min(plan.programs, len(groups))
    best, token = [], []
    for program in range(programs):
        ids = [at for at in range(len(logits)) if at // plan.outputs % programs == program]
        own = logits[ids]
        best.append(float(own.max()))
        token.append(ids[int(own.argmax())])
    return best, token


@EARLY
@PLANS
@pytest.mark.parametrize(("size", "vocabulary"), [(48, 131), (40, 96), (33, 7)])
def test_the_leaders_are_those_of_the_normed_rows_logits(
    plan: FewHeadPlan, size: int, vocabulary: int, is_early: bool, kernel_device: torch.device
) -> None:
    x = fenced(random(1, size, dtype=FP32, device=kernel_device))
    norm = NextNorm(fenced(random(size, dtype=FP32, device=kernel_device)), EPS)
    weight = fenced(random(vocabulary, size, dtype=FP32, device=kernel_device))
    found = few_head(x, norm, weight, plan=plan, is_early=is_early)
    normed = functional.rms_norm(x.double(), (size,), norm.weight.double(), EPS)
    logits = functional.linear(normed, weight.double())[0]
    best, token = leaders_of(logits, plan)
    assert found.best_BT[0].tolist() == pytest.approx(best, rel=1e-4, abs=1e-4)
    assert found.token_BT[0].tolist() == token
    assert chosen(found, vocabulary) == int(logits.argmax())


def test_of_equals_the_lowest_leads_and_rounding_makes_equals(kernel_device: torch.device) -> None:
    x = torch.zeros(1, 32, dtype=torch.float16, device=kernel_device)
    x[0, :2] = 32.0 * 0.5**0.5  # normed it is 4 and 4
    norm = NextNorm(torch.ones(32, dtype=torch.float16, device=kernel_device), 0.0)
    weight = torch.zeros(40, 32, dtype=torch.float16, device=kernel_device)
    weight[[9, 30, 33], 0] = 512.0  # 9 and 33 come in the same place of one program
    weight[30, 1] = 0.125  # 2048 and 2048.5 are one number in float16
    leaders = few_head(x, norm, weight, plan=FewHeadPlan(2, 32, 1, 3), is_early=False)
    assert chosen(leaders, 40) == 9


@pytest.mark.parametrize("token", [0, 37, 129])
def test_a_logit_that_is_no_number_is_told(token: int, kernel_device: torch.device) -> None:
    x = random(1, 32, dtype=FP32, device=kernel_device)
    weight = random(130, 32, dtype=FP32, device=kernel_device)
    weight[token, 5] = torch.nan
    norm = NextNorm(torch.ones(32, device=kernel_device), EPS)
    leaders = few_head(x, norm, weight, plan=FewHeadPlan(4, 32, 1, 3), is_early=False)
    assert int(leaders.best_BT.isnan().sum()) == 1
    state = running([{"temperature": 0}], 130, kernel_device)
    settle(leaders, state, logits_BV=None, weighed=None, keeps_history=False)
    assert state.count.tolist() == [0]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("size", "vocabulary"), [(576, 49_152), (896, 151_936), (2048, 128_256), (4096, 128_256)]
)
def test_a_gpu_takes_the_best_at_the_sizes_of_models(size: int, vocabulary: int) -> None:
    device, dtype = torch.device("cuda:0"), torch.bfloat16
    x = random(1, size, dtype=dtype, device=device)
    weight = fenced(random(vocabulary, size, dtype=dtype, device=device, scale=size**-0.5))
    norm = NextNorm(random(size, dtype=dtype, device=device), EPS)
    plan, is_early = few_head_plan(weight), can_begin_early(device)
    found = {
        chosen(few_head(x, norm, weight, plan=plan, is_early=each), vocabulary)
        for each in (False, is_early, is_early)
    }
    assert len(found) == 1
    normed = functional.rms_norm(x.float(), (size,), norm.weight.float(), EPS)
    logits = functional.linear(normed, weight.float())[0]
    # What is rounded to the best in bfloat16 may be less by a step of it.
    assert logits[found.pop()] >= logits.max() * (1 - 2**-7)
