"""Autocast at recording time (pytorch#71631, pytorch#81558: other numbers, other precision).

Autocast and other ambient modes are part of the signature, and a recording never reads the cache in
which autocast keeps cast weights.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import record, spoil
from ostinato import Outcome, graphed


def autocast(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> torch.autocast:
    return torch.autocast(device.type, dtype=dtype, cache_enabled=True)


class Shared(nn.Module):
    """Uses one weight twice, so that autocast would take the second cast from its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.linear(x).relu())


def check(module: nn.Module, g: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.autocast(
        x.device.type,
        torch.get_autocast_dtype(x.device.type),
        torch.is_autocast_enabled(x.device.type),
        cache_enabled=False,
    ):
        wanted = module(x)
    mine = g(x)
    alike(mine, wanted)
    return mine


def test_recorded_under_autocast_and_called_outside(device: torch.device) -> None:
    """pytorch#81558: eval in fp32, but the graph was fp16."""
    module = Shared().to(device)
    x = torch.randn(4, 8, device=device)
    with autocast(device):
        g = record(module, x)
        assert check(module, g, x).dtype is torch.bfloat16
    for _ in range(3):
        spoil(g)
        assert check(module, g, x).dtype is torch.float32
    with autocast(device):
        spoil(g)
        assert check(module, g, x).dtype is torch.bfloat16
        assert g.last is not None
        assert g.last.outcome is Outcome.REPLAYED
    assert g.report().recordings == 2


def test_recorded_outside_and_called_under_autocast(device: torch.device) -> None:
    """pytorch#81558, the other way round."""
    module = Shared().to(device)
    x = torch.randn(4, 8, device=device)
    g = record(module, x)
    with autocast(device):
        for _ in range(3):
            assert check(module, g, x).dtype is torch.bfloat16
    assert check(module, g, x).dtype is torch.float32


def test_another_autocast_dtype_is_another_signature(device: torch.device) -> None:
    module = Shared().to(device)
    x = torch.randn(4, 8, device=device)
    g = graphed(module, admit_after=1)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16, torch.float16):
        with autocast(device, dtype):
            assert check(module, g, x).dtype is dtype
    assert g.report().recordings == 2


@pytest.mark.parametrize("cached_before", [False, True])
def test_a_weight_changed_between_replays_under_autocast_is_seen(
    cached_before: bool, device: torch.device
) -> None:
    """pytorch#71631: the recording would read a cast weight that autocast had cached."""
    module = Shared().to(device)
    x = torch.randn(4, 8, device=device)
    g = graphed(module, admit_after=1)
    with autocast(device):
        if cached_before:
            module(x)  # the cast weight is in the cache from here to the end of the block
        g(x)
    assert g.last is not None
    assert g.last.outcome is Outcome.RECORDED
    for factor in (2.0, -1.0, 0.5):
        module.linear.weight.mul_(factor)
        with autocast(device):
            spoil(g)
            check(module, g, x)
            assert g.last.outcome is Outcome.REPLAYED
    assert g.report().recordings == 1


def test_the_cache_is_on_again_after_a_recording(device: torch.device) -> None:
    with autocast(device):
        record(Shared().to(device), torch.randn(4, 8, device=device))
        assert torch.is_autocast_cache_enabled()


def test_autocast_inside_the_step_sees_changed_weights(device: torch.device) -> None:
    """pytorch#71631: nobody outside can turn this cache off."""
    module = Shared().to(device)

    def step(x: Tensor) -> Tensor:
        with autocast(x.device):
            return module(x)

    x = torch.randn(4, 8, device=device)
    g = graphed(step, admit_after=1)
    for factor in (1.0, 2.0, -1.0, 0.5):
        module.linear.weight.mul_(factor)
        spoil(g)
        mine = g(x)
        alike(mine, step(x))


def test_a_disabled_autocast_is_like_none(device: torch.device) -> None:
    module = Shared().to(device)
    x = torch.randn(4, 8, device=device)
    g = record(module, x)
    with torch.autocast(device.type, enabled=False):
        assert check(module, g, x).dtype is torch.float32
    with autocast(device), torch.autocast(device.type, enabled=False):
        assert check(module, g, x).dtype is torch.float32


def default_dtype() -> AbstractContextManager[None]:
    class Double:
        def __enter__(self) -> None:
            torch.set_default_dtype(torch.float64)

        def __exit__(self, *_: object) -> None:
            torch.set_default_dtype(torch.float32)

    return Double()


AMBIENT: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "default-dtype": default_dtype,
    "default-device": lambda: torch.device("meta"),
    "inference-mode": torch.inference_mode,
    "grad": torch.enable_grad,
}


@pytest.mark.parametrize("kind", AMBIENT)
def test_other_ambient_modes_are_those_of_the_call(kind: str, device: torch.device) -> None:
    """The same kind: what surrounds a call is not frozen by the recording."""

    def step(x: Tensor) -> dict[str, object]:
        made = torch.ones(3)  # no dtype and no device: those of the moment
        return {"x": x * 2, "dtype": made.dtype, "place": made.device.type, "sum": x + 1}

    x = torch.randn(3, device=device)
    g = graphed(step, admit_after=1)
    for context in (nullcontext, AMBIENT[kind], nullcontext, AMBIENT[kind]):
        with context():
            mine, wanted = g(x), step(x)
            alike(mine, wanted)
            assert mine["x"].is_inference() == wanted["x"].is_inference()  # type: ignore[attr-defined]


def test_a_tensor_made_inside_has_the_default_type_of_the_call(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        return x.sum() + torch.ones(3, device=x.device)

    x = torch.randn(3, device=device)
    g = graphed(step, admit_after=1)
    for context in (nullcontext, default_dtype, nullcontext, default_dtype):
        with context():
            alike(g(x), step(x))
