"""Columns of codes in another order: the same on both sides, and a thread's own side by side."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
import triton
import triton.language as tl

from llm.kernels.cases import Heads
from llm.kernels.test_tiled_rows import assert_gate_up, assert_product_add, assert_qkv
from ostinato.llm.kernels import tiled_rows
from ostinato.llm.kernels.code_runs import in_runs, run_columns
from ostinato.llm.kernels.tiled_rows import TilePlan

FP32 = torch.float32
KINDS = pytest.mark.parametrize("kind", ["codes", "float8", "plain"])


@triton.jit
def _orders(of_matrix: tl.tensor, of_tokens: tl.tensor, CHUNK: tl.constexpr) -> None:
    at = tl.arange(0, CHUNK)
    piece_RC = tl.broadcast_to(at[None, :], (2, CHUNK))
    row = tl.arange(0, 2)[:, None] * CHUNK
    tl.store(of_matrix + row + at[None, :], in_runs(piece_RC))
    tl.store(of_tokens + at, run_columns(CHUNK))


@pytest.mark.parametrize("chunk", [64, 256])
def test_both_sides_have_one_order(chunk: int, interpreter: torch.device) -> None:
    of_matrix = torch.empty(2, chunk, dtype=torch.int32, device=interpreter)
    of_tokens = torch.empty(chunk, dtype=torch.int32, device=interpreter)
    _orders[(1,)](of_matrix, of_tokens, CHUNK=chunk)
    assert torch.equal(of_matrix, of_tokens.expand(2, chunk))
    assert torch.equal(of_tokens.sort().values, torch.arange(chunk).int())
    # Of 16 places a thread has two pairs, eight apart; of 64, the columns of one run.
    for start in range(0, chunk, 64):
        for thread in range(4):
            own = [
                start + 16 * step + 8 * half + 2 * thread for step in range(4) for half in (0, 1)
            ]
            columns = [int(of_tokens[place + pair]) for place in own for pair in (0, 1)]
            assert columns == [*range(start + 16 * thread, start + 16 * thread + 16)]


@KINDS
@pytest.mark.parametrize(
    ("rows", "size", "plan"),
    [
        (5, 128, TilePlan(64, 64, 1, 2)),
        (1, 192, TilePlan(64, 64, 1, 2, splits=2)),
        (5, 256, TilePlan(64, 128, 1, 1, ahead=2)),
        (5, 192, TilePlan(64, 128, 1, 2)),  # the last piece is not full
        (5, 128, TilePlan(32, 64, 1, 2)),  # too few rows
    ],
)
def test_a_product_is_added(
    rows: int, size: int, plan: TilePlan, kind: str, interpreter: torch.device
) -> None:
    assert_product_add(rows, size, 70, plan, kind, FP32, interpreter, is_early=False)


def test_gate_and_up(interpreter: torch.device) -> None:
    plan = TilePlan(32, 64, 1, 2)
    assert_gate_up(5, 128, 42, plan, "codes", "silu", FP32, interpreter, is_early=False)


def test_queries_keys_and_values(interpreter: torch.device) -> None:
    plan = TilePlan(32, 64, 1, 2)
    assert_qkv(Heads(3, 1, 10), 5, 128, plan, "codes", FP32, interpreter, is_early=False)


def test_codes_are_taken_in_runs_and_numbers_are_not(
    interpreter: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def counted(chunk: int) -> tl.tensor:
        taken.append(int(chunk))
        return tl.arange(0, chunk)  # a wrong order

    monkeypatch.setattr(tiled_rows, "run_columns", counted)
    given = (5, 128, 70, TilePlan(64, 64, 1, 2))
    assert_product_add(*given, "plain", FP32, interpreter, is_early=False)
    assert taken == []
    with pytest.raises(AssertionError):
        assert_product_add(*given, "codes", FP32, interpreter, is_early=False)
    assert {*taken} == {64}
