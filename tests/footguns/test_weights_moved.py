"""Weights that lie elsewhere after a recording (vllm#48941, sglang#4961: old weights used)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike, held_bytes
from graphs.replaying import check_replay, record, spoil
from ostinato import Outcome, Reason, graphed


class Scaled(nn.Module):
    """A linear layer with a weight derived from another one, as quantisers and mergers make."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(4))
        self.adapter = nn.Linear(4, 4, bias=False)
        self.derive()

    def derive(self) -> None:
        self.derived = self.linear.weight.detach().t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) @ self.derived + self.shift + self.adapter(x)


def scaled(device: torch.device) -> Scaled:
    """Make the layer on `device`; `.to()` leaves the plain attribute behind."""
    module = Scaled().to(device)
    module.derive()
    return module


def fresh(module: nn.Module) -> dict[str, Tensor]:
    return {name: torch.randn_like(value) for name, value in module.state_dict().items()}


def load(m: Scaled) -> None:
    m.load_state_dict(fresh(m), assign=True)


def load_and_derive(m: Scaled) -> None:
    load(m)
    m.derive()


def rebuild_derived(m: Scaled) -> None:
    m.derived = (m.derived * 2).t().contiguous()


def set_data(m: Scaled) -> None:
    m.linear.weight.data = torch.randn_like(m.linear.weight)


def transpose_data(m: Scaled) -> None:
    """The same address, storage, dtype and shape: only the strides differ."""
    m.linear.weight.data = m.linear.weight.data.t()


def flip_order(m: Scaled) -> None:
    """The same storage, shape and strides: only the offset differs."""
    pool = torch.randn(2, 4, device=m.shift.device)
    m.shift.data = pool[0]
    m.shift.data = pool[1]


def new_parameter(m: Scaled) -> None:
    m.linear.weight = nn.Parameter(torch.randn_like(m.linear.weight))


def new_buffer(m: Scaled) -> None:
    m.shift = torch.randn_like(m.shift)


def to_double_and_back(m: Scaled) -> None:
    m.double()
    m.linear.weight.data *= 2
    m.float()
    m.derived = m.derived.float()


def swap_adapter(m: Scaled) -> None:
    m.adapter = nn.Linear(4, 4, bias=False).to(m.shift.device)


def drop_bias(m: Scaled) -> None:
    m.linear.bias = None


def tie(m: Scaled) -> None:
    m.adapter.weight = m.linear.weight


MOVES: dict[str, Callable[[Scaled], None]] = {
    "load-assign": load,
    "load-assign-and-derive": load_and_derive,
    "derived": rebuild_derived,
    "data": set_data,
    "data-transposed": transpose_data,
    "data-offset": flip_order,
    "new-parameter": new_parameter,
    "new-buffer": new_buffer,
    "to-and-back": to_double_and_back,
    "adapter": swap_adapter,
    "bias-gone": drop_bias,
    "tied": tie,
}

Wrap = Callable[[Scaled], Callable[..., Any]]


class Holder:
    def __init__(self, module: Scaled) -> None:
        self.models = {"main": [module]}

    def step(self, x: Tensor) -> Tensor:
        return self.models["main"][0](x)


WRAPS: dict[str, Wrap] = {
    "module": lambda m: m,
    "lambda": lambda m: lambda x: m(x),
    "forward": lambda m: m.forward,
    "partial": lambda m: functools.partial(Scaled.forward, m),
    "default": lambda m: lambda x, m=m: m(x),
    "list": lambda m: lambda x, ms=[m]: ms[0](x),
    "holder": lambda m: Holder(m).step,
    "nested": lambda m: nn.Sequential(nn.Identity(), m),
}


def check_follows(g: Any, step: Callable[..., Any], device: torch.device, calls: int = 4) -> None:
    for _ in range(calls):
        x = torch.randn(3, 4, device=device)
        spoil(g)
        alike(g(x), step(x))


@pytest.mark.parametrize("kind", MOVES)
def test_moved_weights_are_used_from_the_very_next_call(kind: str, device: torch.device) -> None:
    module = scaled(device)
    g = record(module, torch.randn(3, 4, device=device))
    check_follows(g, module, device, 1)
    MOVES[kind](module)
    x = torch.randn(3, 4, device=device)
    alike(g(x), module(x))
    assert g.last is not None
    assert g.last.outcome is not Outcome.REPLAYED, g.last
    assert set(g.report().reasons) & {"weights-moved", "attribute-changed"}, g.report().reasons
    check_follows(g, module, device)
    assert g.last.outcome is Outcome.REPLAYED, "it is recorded again"
    assert len(g.report().graphs) == 1


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("kind", ["load-assign", "derived", "data", "adapter"])
def test_moved_weights_are_seen_however_the_callable_reaches_its_module(
    kind: str, wrap: str, device: torch.device
) -> None:
    module = scaled(device)
    step = WRAPS[wrap](module)
    g = record(step, torch.randn(3, 4, device=device))
    check_follows(g, step, device, 1)
    MOVES[kind](module)
    check_follows(g, step, device)
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED


def test_the_reason_is_weights_moved(device: torch.device) -> None:
    """sglang#4961: `load_state_dict(assign=True)`."""
    module = scaled(device)
    g = record(module, torch.randn(3, 4, device=device))
    load(module)
    g(torch.randn(3, 4, device=device))
    assert g.last is not None
    assert g.report().reasons.get(Reason.WEIGHTS_MOVED.value, 0) >= 1
    assert g.last.reason is Reason.WEIGHTS_MOVED, g.last


def test_weights_moved_over_and_over_keep_no_old_ones_alive(device: torch.device) -> None:
    """vllm#48941: a recording that holds the old weights holds their memory."""
    module = nn.Linear(512, 512, bias=False).to(device)
    x = torch.randn(1, 512, device=device)
    g = graphed(module, admit_after=1)

    def move_and_call() -> int:
        module.load_state_dict(fresh(module), assign=True)
        alike(g(x), module(x))
        alike(g(x), module(x))
        return held_bytes(device)

    move_and_call()
    after_one = move_and_call()
    for _ in range(5):
        after_many = move_and_call()
    assert after_many <= after_one + (2 << 20 if device.type == "cuda" else 0)


def test_old_memory_that_is_taken_by_others_is_not_read(device: torch.device) -> None:
    module = nn.Linear(256, 256).to(device)
    x = torch.randn(2, 256, device=device)
    g = record(module, x)
    for _ in range(3):
        module.load_state_dict(fresh(module), assign=True)
        junk = [torch.full((256, 256), float("nan"), device=device) for _ in range(4)]
        alike(g(x), module(x))
        alike(g(x), module(x))
        del junk


IN_PLACE: dict[str, Callable[[Scaled], object]] = {
    "copy": lambda m: m.linear.weight.copy_(torch.randn_like(m.linear.weight)),
    "load": lambda m: m.load_state_dict(fresh(m)),
    "buffer": lambda m: m.shift.add_(1),
    "derived": lambda m: m.derived.mul_(2),
    "data-in-place": lambda m: m.linear.weight.data.mul_(2),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_weights_changed_in_place_are_seen_without_another_recording(
    kind: str, device: torch.device
) -> None:
    module = scaled(device)
    g = record(module, torch.randn(3, 4, device=device))
    for _ in range(3):
        IN_PLACE[kind](module)
        check_replay(g, torch.randn(3, 4, device=device))
    assert g.report().recordings == 1


def test_update_weights_needs_no_other_recording(device: torch.device) -> None:
    module = scaled(device)
    g = record(module, torch.randn(3, 4, device=device))
    for _ in range(3):
        weights = {name: value.to(torch.bfloat16).cpu() for name, value in fresh(module).items()}
        g.update_weights(weights)
        alike(module.linear.weight.data, weights["linear.weight"].to(device, torch.float32))
        check_replay(g, torch.randn(3, 4, device=device))
    assert g.report().recordings == 1


def test_a_weight_moved_by_another_name_is_seen(device: torch.device) -> None:
    """A tensor that the step reaches through a dict in a closure, and no module at all."""
    weights = {"w": torch.randn(4, 4, device=device)}

    def step(x: Tensor) -> Tensor:
        return x @ weights["w"]

    g = record(step, torch.randn(3, 4, device=device))
    for _ in range(3):
        weights["w"] = torch.randn(4, 4, device=device)
        check_follows(g, step, device, 3)
