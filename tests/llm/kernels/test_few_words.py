"""Products of int8 codes with a token in whole numbers: as exact as the token's own type."""

from __future__ import annotations

import pytest
import torch

from llm.kernels.cases import Heads, apart, random

pytest.importorskip("triton")

from llm.kernels.test_few_rows import assert_gate_up, assert_product_add, assert_qkv
from ostinato.llm.kernels.few_product_add import few_product_add
from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.matrix import Matrix

BF16 = torch.bfloat16
# One chunk for all, and several, of which the last is not full; a program that is not full.
PLANS = pytest.mark.parametrize("plan", [FewPlan(8, 64, 1), FewPlan(4, 32, 1)])


def int8_matrix(outputs: int, inputs: int, device: torch.device) -> Matrix:
    codes = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8, device=device)
    return Matrix(codes, torch.ones(outputs, device=device))


def test_which_matrices_are_taken_in_words() -> None:
    def weights(inputs: int, codes: torch.dtype, number: torch.dtype, plan: FewPlan) -> torch.dtype:
        return plan.weights(Matrix(torch.zeros(2, inputs).to(codes)), number).dtype

    plan = FewPlan(4, 32, 1)
    assert weights(48, torch.int8, BF16, plan) == torch.int32
    assert weights(48, torch.int8, torch.float16, plan) == torch.int32
    # A token in float32 is finer than two bytes; rows must begin where 16 bytes do.
    assert weights(48, torch.int8, torch.float32, plan) == torch.int8
    assert weights(40, torch.int8, BF16, plan) == torch.int8
    assert weights(48, torch.int8, BF16, FewPlan(4, 32, 1, is_spread=True)) == torch.int8
    assert weights(48, torch.int8, BF16, FewPlan(4, 8, 1)) == torch.int8
    assert weights(48, torch.float8_e4m3fn, BF16, plan) == torch.float8_e4m3fn
    assert weights(48, BF16, BF16, plan) == BF16


@PLANS
def test_a_product_is_added(plan: FewPlan, interpreter: torch.device) -> None:
    assert_product_add(1, 48, 6, plan, "codes", BF16, interpreter, is_early=False)


def test_gate_and_up(interpreter: torch.device) -> None:
    plan = FewPlan(4, 32, 1)
    assert_gate_up(2, 48, 6, plan, "codes", "silu", BF16, interpreter, is_early=False)


def test_queries_keys_and_values(interpreter: torch.device) -> None:
    heads, plan = Heads(2, 1, 4), FewPlan(8, 32, 1)
    assert_qkv(heads, 1, 48, plan, "codes", BF16, interpreter, is_early=False)


def products(matrix: Matrix, h_MK: torch.Tensor, plan: FewPlan) -> torch.Tensor:
    """Return the sums in float32, which are rounded no more."""
    x_ME = torch.zeros(len(h_MK), len(matrix.weight), device=h_MK.device)
    few_product_add(x_ME, h_MK, matrix, plan=plan, is_early=False)
    return x_ME


@PLANS
def test_numbers_of_few_bits_are_multiplied_exactly(
    plan: FewPlan, interpreter: torch.device
) -> None:
    assert_whole(plan, interpreter)


@pytest.mark.gpu
@pytest.mark.parametrize("plan", [FewPlan(8, 64, 1), FewPlan(4, 512, 1), FewPlan(2, 2048, 4)])
def test_numbers_of_few_bits_are_multiplied_exactly_compiled(plan: FewPlan) -> None:
    assert_whole(plan, torch.device("cuda:0"))


def assert_whole(plan: FewPlan, device: torch.device) -> None:
    """The largest of each sixteen is a whole number of steps, and so is every other."""
    matrix = int8_matrix(6, 64, device)
    h_MK = torch.randint(-4, 5, (1, 64), device=device).to(BF16)
    h_MK[:, ::16] = 5.0  # 32,000 steps of 1/6400
    expected = h_MK.double() @ matrix.weight.double().T
    assert apart(products(matrix, h_MK, plan), expected) < 1e-6


def test_a_large_number_costs_its_neighbours_little_and_others_nothing(
    interpreter: torch.device,
) -> None:
    matrix, plan = int8_matrix(8, 64, interpreter), FewPlan(8, 64, 1)
    h_MK = random(1, 64, dtype=BF16, device=interpreter)
    assert apart(products(matrix, h_MK, plan), h_MK.double() @ matrix.weight.double().T) < 3e-5
    h_MK[0, 5] = 1000.0
    matrix.weight[:, 5] = 0  # so that only what it does to others is seen
    found, expected = products(matrix, h_MK, plan), h_MK.double() @ matrix.weight.double().T
    assert apart(found, expected) < 1e-2
    matrix.weight[:, :16] = 0
    found, expected = products(matrix, h_MK, plan), h_MK.double() @ matrix.weight.double().T
    assert apart(found, expected) < 3e-5


BAD = pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])


@pytest.mark.filterwarnings("ignore:invalid value")
@BAD
def test_what_is_no_number_stays_none(bad: float, interpreter: torch.device) -> None:
    assert_not_hidden(bad, interpreter)


@pytest.mark.gpu
@BAD
def test_what_is_no_number_stays_none_compiled(bad: float) -> None:
    assert_not_hidden(bad, torch.device("cuda:0"))


def assert_not_hidden(bad: float, device: torch.device) -> None:
    """A whole number is always finite; what it is multiplied with in the end must tell."""
    matrix = int8_matrix(6, 48, device)
    h_MK = random(2, 48, dtype=BF16, device=device)
    h_MK[1, 40] = bad
    found = products(matrix, h_MK, FewPlan(8, 32, 1))
    assert found[0].isfinite().all()
    assert not found[1].isfinite().any()


def test_zeros(interpreter: torch.device) -> None:
    matrix = int8_matrix(6, 48, interpreter)
    found = products(matrix, torch.zeros(1, 48, dtype=BF16), FewPlan(8, 32, 1))
    assert (found == 0).all()
