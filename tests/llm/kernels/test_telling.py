"""What a kernel is told to write is seen by those who put it back."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from ostinato.graphs.observe import observe
from ostinato.llm.kernels.telling import tell_writes


def test_a_write_that_was_told_is_seen_and_put_back() -> None:
    told, other = torch.zeros(5), torch.zeros(5)
    memory = told.numpy()

    def step() -> None:
        other.sum()
        tell_writes([told[1:3], other[:0]])
        memory[1:3] = 7  # no call of torch

    seen = observe(step, [], device=torch.device("cpu"))
    assert seen.refusals == []
    assert told.tolist() == [0, 7, 7, 0, 0]
    seen.restore()
    assert told.tolist() == [0] * 5
