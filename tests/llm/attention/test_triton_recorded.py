"""Triton recorded: `graphed` records a step with our kernels, and replays serve every length."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("triton")

from llm.attention.paged_case import TOLERANCE, PagedCase
from ostinato import Outcome, graphed
from ostinato.llm.attention.triton_attention import TritonAttention


@pytest.mark.gpu
@pytest.mark.parametrize("is_invariant", [False, True], ids=["shared", "invariant"])
def test_a_step_is_recorded_at_once_although_its_kernels_are_compiled_on_the_way(
    is_invariant: bool,
) -> None:
    device = torch.device("cuda:0")
    # A head size that no other test has: its kernels are compiled here, unless the disk has them.
    case = PagedCase.of(
        (700, 300, 1), heads=4, kv_heads=2, size=112, dtype=torch.bfloat16, device=device
    )
    attention = TritonAttention.on(
        case.shape, device=device, dtype=torch.bfloat16, is_invariant=is_invariant
    )
    q = case.queries(3)

    def step() -> torch.Tensor:
        return attention.decode(1, q, case.store, case.pages_BP, case.lengths_B)

    runner = graphed(step, admit_after=1, warmups=1, outputs="owned")
    runner()
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED, runner.last
    for lengths in ((700, 300, 1), (33, 0, 1)):
        case.lengths_B.copy_(torch.tensor(lengths))
        found = runner()
        assert runner.last.outcome is Outcome.REPLAYED, runner.last
        for row, length in enumerate(lengths):
            if length:
                expected = case.expected(q[row], row, length - 1)
                tolerance = TOLERANCE[torch.bfloat16]
                assert_close(found[row].double(), expected, rtol=tolerance, atol=tolerance)
            else:
                assert not found[row].any()
