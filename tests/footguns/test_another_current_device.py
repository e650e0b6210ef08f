"""Another device is current than the one recorded (pytorch#87794, mstar#55: capture fails)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import check_replay, spoil
from ostinato import Outcome, Reason, graphed

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv": (lambda: nn.Conv2d(3, 8, 3), (1, 3, 16, 16)),
    "linear": (lambda: nn.Linear(16, 16), (4, 16)),
    "batch-norm": (lambda: nn.BatchNorm1d(16), (4, 16)),
    "dropout": (lambda: nn.Dropout(0.5), (4, 16)),
    "factory": (lambda: AddsOnes(), (4, 16)),
}


class AddsOnes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.ones(x.shape[-1], device=x.device) + torch.rand_like(x)


@pytest.mark.gpu2
@pytest.mark.parametrize("current_stream", ["default", "own"])
@pytest.mark.parametrize("kind", MODULES)
def test_a_module_on_the_second_gpu_is_recorded_while_the_first_is_current(
    kind: str, current_stream: str
) -> None:
    make, shape = MODULES[kind]
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    mine = make().to(second)  # its first use is under our hands
    theirs = copy.deepcopy(mine)
    g = graphed(mine, admit_after=1)
    torch.cuda.synchronize(first)
    on_first = torch.cuda.memory_allocated(first)
    stream = (
        torch.cuda.Stream(second) if current_stream == "own" else torch.cuda.default_stream(second)
    )
    with torch.cuda.device(first):
        for number in range(4):
            x = torch.randn(*shape, device=second)
            stream.wait_stream(torch.cuda.default_stream(second))
            spoil(g)
            stream.wait_stream(torch.cuda.default_stream(second))
            state = torch.cuda.get_rng_state(second)
            with torch.cuda.stream(stream):
                y = g(x)
            assert torch.cuda.current_device() == 0 or current_stream == "own"
            stream.synchronize()
            after = torch.cuda.get_rng_state(second)
            torch.cuda.set_rng_state(state, second)
            torch.testing.assert_close(y, theirs(x), rtol=1e-4, atol=1e-5)
            assert torch.equal(torch.cuda.get_rng_state(second), after)
            assert g.last is not None
            assert g.last.outcome is (Outcome.REPLAYED if number else Outcome.RECORDED), g.last
            assert y.device == second
        assert torch.cuda.current_device() == 0
    alike(dict(mine.state_dict()), dict(theirs.state_dict()))
    assert torch.cuda.memory_allocated(first) == on_first


@pytest.mark.gpu2
def test_one_runner_serves_each_gpu_from_a_recording_of_its_own() -> None:
    g = graphed(lambda x, w: torch.relu(x @ w), admit_after=1)
    calls = [
        (torch.randn(4, 8, device=place), torch.randn(8, 8, device=place))
        for place in ("cuda:0", "cuda:1")
    ]
    with torch.cuda.device(0):
        for args in calls:
            g(*args)
        for args in calls * 5:
            spoil(g)
            y = g(*args)
            assert y.device == args[0].device
            torch.testing.assert_close(y, torch.relu(args[0] @ args[1]), rtol=1e-4, atol=1e-5)
            assert g.last is not None
            assert g.last.outcome is Outcome.REPLAYED
    assert g.report().recordings == 2


@pytest.mark.gpu2
def test_a_module_that_moves_to_the_other_gpu_is_recorded_there() -> None:
    module = nn.Linear(8, 8).to("cuda:0")
    g = graphed(module, admit_after=1)
    for place in ("cuda:0", "cuda:1", "cuda:0"):
        module.to(place)
        for _ in range(3):
            x = torch.randn(4, 8, device=place)
            torch.testing.assert_close(g(x), module(x), rtol=1e-4, atol=1e-5)
        assert g.last is not None
        assert g.last.outcome is Outcome.REPLAYED, g.last


def test_a_device_context_around_the_call_does_not_redirect_the_recording(
    device: torch.device,
) -> None:
    """One device's version: factories obey `with torch.device`, static buffers must not."""
    conv = nn.Conv2d(3, 8, 3).to(device)
    g = graphed(conv, admit_after=1)
    with torch.device("meta"):
        g(torch.randn(1, 3, 8, 8, device=device))
    assert g.last is not None
    assert g.last.outcome is Outcome.RECORDED, g.last
    with torch.device("meta"):
        for _ in range(3):
            check_replay(g, torch.randn(1, 3, 8, 8, device=device))


@pytest.mark.gpu
def test_a_model_on_the_gpu_given_cpu_tensors_fails_as_eager_does() -> None:
    linear = nn.Linear(4, 4).to("cuda:0")
    g = graphed(linear, admit_after=1)
    with pytest.raises(RuntimeError, match="same device"):
        g(torch.randn(2, 4))
    x = torch.randn(2, 4, device="cuda:0")
    torch.testing.assert_close(g(x), linear(x))


@pytest.mark.gpu
def test_a_step_that_takes_cpu_and_gpu_tensors_is_right_or_says_why() -> None:
    def step(x: Tensor, scale: Tensor) -> Tensor:
        return x * scale.to(x.device, non_blocking=True)

    g = graphed(step, admit_after=1)
    for number in range(4):
        x = torch.randn(4, device="cuda:0")
        scale = torch.full((4,), float(number)).pin_memory()
        torch.testing.assert_close(g(x, scale), x * number)
    assert g.last is not None
    if g.last.outcome is Outcome.EAGER:
        assert g.last.reason in (Reason.HOST_COPY, Reason.SEVERAL_DEVICES), g.last
