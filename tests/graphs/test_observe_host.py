"""Reads by the host that no aten call tells of: refused, with the line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, graphed
from ostinato.graphs.observe import Refusal, observe

CPU = torch.device("cpu")
AT = torch.tensor([0, 1, 2])


@pytest.fixture(params=[torch.no_grad, torch.inference_mode], autouse=True)
def _without_gradients(request: pytest.FixtureRequest) -> Iterator[None]:
    with request.param():
        yield


def refusals(step: Callable[[Tensor], object]) -> list[Refusal]:
    x = torch.arange(4.0)
    return observe(lambda: step(x), [x, AT], device=CPU).refusals


READS: dict[str, Callable[[Tensor], object]] = {
    "torch.tensor": lambda x: torch.tensor([x[0] * 2, 1.0]),
    "torch.tensor nested": lambda x: torch.tensor([[1.0, 2.0], (3.0, x[0])]),
    "torch.tensor of a deque": lambda x: torch.tensor(deque([x[0]])),
    "torch.tensor by keyword": lambda x: torch.tensor(data=list(x)),
    "torch.as_tensor": lambda x: torch.as_tensor([x[0], 1.0]),
    "torch.asarray": lambda x: torch.asarray([x[0], 1.0]),
    "Tensor.new_tensor": lambda x: x.new_tensor([x[0], 1.0]),
    "Tensor.new": lambda x: x.new([x[0], 1.0]),
    "Tensor.__float__": lambda x: torch.Tensor([x[0], 1.0]),
    "Tensor.__float__ of a FloatTensor": lambda x: torch.FloatTensor([x[0], 1.0]),
    "Tensor.__index__": lambda x: torch.LongTensor([AT[1], 1]),
    "Tensor.__getitem__": lambda x: x[[[AT[1], 1]]],
    "Tensor.__getitem__ in a tuple": lambda x: x.view(2, 2)[0, [AT[1], 1]],
    "Tensor.__getitem__ of a long list": lambda x: x[[AT[1]] * 40],
    "Tensor.__setitem__": lambda x: x.clone().__setitem__(([AT[1], 1],), 0),
    "torch.tensor as an index": lambda x: x[torch.tensor([x[0].long(), 1])],
}


LISTS_AS_TUPLES = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")


@LISTS_AS_TUPLES
@pytest.mark.parametrize("name", READS)
def test_tensors_in_a_list_that_becomes_a_tensor_are_host_syncs(name: str) -> None:
    first = refusals(READS[name])[0]
    assert (first.reason, first.op) == (Reason.HOST_SYNC, name.partition(" ")[0])
    assert (first.where or "").startswith("test_observe_host.py:")


KEEPS: dict[str, Callable[[Tensor], object]] = {
    "numbers": lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "a tensor": lambda x: torch.as_tensor(x),
    "a stack": lambda x: torch.stack([x[0], x[1]]),
    "indices side by side": lambda x: x.view(2, 2)[[AT[:2], AT[:2]]],
    "an index in a tuple": lambda x: x.view(2, 2)[AT[:2], 0],
    "a list of numbers": lambda x: x[[0, 1]],
}


@LISTS_AS_TUPLES
@pytest.mark.parametrize("name", KEEPS)
def test_lists_that_need_no_read_are_fine(name: str) -> None:
    assert not refusals(KEEPS[name])


def test_numbers_of_the_host_beside_a_gpu_are_python_values() -> None:
    step = [lambda: torch.tensor([AT[0], 1]), lambda: torch.LongTensor([AT[0], 1])]
    for each in step:
        assert not observe(each, [], device=torch.device("meta")).refusals


def test_a_function_that_reads_a_list_answers_as_eager_on_every_call(device: torch.device) -> None:
    g = graphed(lambda x: x + x.new_tensor([x[0] * 2, 1.0]), admit_after=1)
    for value in (1.0, 5.0, 9.0):
        assert g(torch.full((2,), value, device=device)).tolist() == [3 * value, value + 1]
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.HOST_SYNC)
