"""TorchScript reads its weights in C++; they lie where all of the factory's tensors lie."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ostinato.doctor.check.run import check
from ostinato.doctor.check.verdict import Verdict

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
        self.register_buffer("scale", torch.ones(3))
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.layers(x), self.scale.expand_as(x)]) * self.scale


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y * y.sum().item()


def test_weights_of_a_script_lie_with_everything_else_where_nothing_is_put_on_a_gpu() -> None:
    for model in (nn.Linear(3, 3), Gated()):
        checked = check(lambda model=model: (torch.jit.script(model), torch.ones(2, 3)))
        assert checked.blockers == ()
        assert checked.verdict is Verdict.CAPTURABLE
        assert checked.estimate is not None


def test_a_script_inside_of_a_function_is_found() -> None:
    scripted = torch.jit.script(nn.Linear(3, 3))

    def step(x: Tensor) -> Tensor:
        made: Tensor = scripted(x + 1)
        return made

    assert check(lambda: (step, torch.ones(2, 3))).verdict is Verdict.CAPTURABLE


def test_a_read_inside_of_a_script_is_still_in_the_way() -> None:
    checked = check(lambda: (torch.jit.script(Looking()), torch.ones(2, 3)))
    assert checked.reason == "host-sync"


def test_a_script_left_on_the_host_beside_a_gpu_is_still_in_the_way() -> None:
    checked = check(lambda: (torch.jit.script(nn.Linear(3, 3)), torch.ones(2, 3, device="cuda")))
    assert checked.verdict is Verdict.NOT_CAPTURABLE
    assert "several-devices" in {each.reason for each in checked.blockers}
