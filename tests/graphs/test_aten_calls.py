"""What the schema of a call says, and what it leaves out."""

import torch
import torch.distributed  # registers the collectives

from ostinato.graphs.aten_calls import written_in


def test_a_collective_writes_what_it_is_given_though_its_schema_does_not_say_so() -> None:
    x = torch.ones(2)
    func = torch.ops.c10d.allreduce_.default
    assert written_in(func, ([x], None, None), {}) == [x]


def test_a_call_writes_only_what_its_schema_marks() -> None:
    x, y = torch.ones(2), torch.ones(2)
    assert [t is x for t in written_in(torch.ops.aten.add_.Tensor, (x, y), {})] == [True]
    assert written_in(torch.ops.aten.add.Tensor, (x, y), {}) == []
