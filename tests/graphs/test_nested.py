"""A graphed callable inside another recording runs inline, as plain code."""

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, graphed


def test_an_inner_runner_is_part_of_the_outer_recording(device: torch.device) -> None:
    inner = graphed(lambda x: x * 2, admit_after=1)
    outer = graphed(lambda x: inner(x) + 1, admit_after=1)
    for value in (1.0, 2.0, 3.0):
        assert outer(torch.full((2,), value, device=device)).tolist() == [2 * value + 1] * 2
    assert outer.last is not None
    assert outer.last.outcome is Outcome.REPLAYED
    # The run that answered the recording call was the outer's eager run; a replay never enters.
    assert inner.report().calls == 1
    assert outer.report().recordings == 1


def test_a_runner_may_call_itself(device: torch.device) -> None:
    def countdown(x: Tensor, n: int) -> Tensor:
        return x if n == 0 else runner(x + 1, n - 1)

    runner = graphed(countdown)
    x = torch.zeros(1, device=device)
    for _ in range(4):
        assert runner(x, 3).item() == 3.0


def test_weights_of_an_inner_runner_are_watched_by_the_outer(device: torch.device) -> None:
    module = nn.Linear(1, 1, bias=False, device=device).requires_grad_(False)
    inner = graphed(module)
    outer = graphed(lambda x: inner(x) * 2, admit_after=1)
    x = torch.ones(1, 1, device=device)
    for _ in range(3):
        outer(x)
    module.load_state_dict({"weight": torch.full((1, 1), 5.0, device=device)}, assign=True)
    assert outer(x).item() == 10.0


@pytest.mark.gpu
def test_inside_a_user_s_own_graph_it_runs_as_plain_code() -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    x = torch.ones(4, device="cuda")
    runner(x)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        y = runner(x)
    calls = runner.report().calls
    x.fill_(3.0)
    graph.replay()
    assert y.tolist() == [6.0] * 4
    assert runner.report().calls == calls


@pytest.mark.gpu2
def test_a_module_on_another_device_than_the_current_one_is_recorded_there() -> None:
    module = nn.Conv2d(3, 4, 3).to("cuda:1")
    runner = graphed(module, admit_after=1)
    x = torch.randn(1, 3, 8, 8, device="cuda:1")
    with torch.no_grad(), torch.cuda.device(0):
        for _ in range(3):
            torch.testing.assert_close(runner(x), module(x))
        assert torch.cuda.current_device() == 0
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


@pytest.mark.gpu2
def test_a_forward_that_spans_two_devices_is_refused() -> None:
    runner = graphed(lambda x: (x * 2).to("cuda:1"), admit_after=1)
    y = runner(torch.ones(2, device="cuda:0"))
    assert y.device == torch.device("cuda:1")
    assert runner.last is not None
    assert str(runner.last.reason) == "several-devices"
