"""A compiled module inside (pytorch#156377, pytorch#171894: recompiles, garbage)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import spoil
from ostinato import Outcome, Reason, graphed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.GELU())
        self.outer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(x)) + 1) * 2


def compiled_inside(backend: str, **options: Any) -> Callable[[nn.Module], nn.Module]:
    def wrap(block: nn.Module) -> nn.Module:
        block.inner = torch.compile(block.inner, backend=backend, **options)
        return block

    return wrap


INSIDE: dict[str, Callable[[nn.Module], Callable[..., Any]]] = {
    "submodule-eager": compiled_inside("eager"),
    "submodule-aot": compiled_inside("aot_eager"),
    "whole-aot": lambda block: torch.compile(block, backend="aot_eager"),
    "dynamic": compiled_inside("aot_eager", dynamic=True),
    "function": lambda block: (
        lambda x: torch.compile(lambda y: y * 2 + 1, backend="aot_eager")(block(x))
    ),
}


def check(g: Any, block: Callable[..., Any], device: torch.device, rows: list[int]) -> None:
    for count in rows:
        x = torch.randn(count, 6, device=device)
        spoil(g)
        torch.testing.assert_close(g(x), block(x), rtol=1e-4, atol=1e-5)
        assert g.last is not None
        if g.last.outcome is Outcome.EAGER:
            assert g.last.reason in (Reason.COMPILED_INSIDE, Reason.NOT_ADMITTED_YET), g.last


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
@pytest.mark.parametrize("kind", INSIDE)
def test_a_compiled_part_works_or_runs_eagerly_with_the_reason(
    kind: str, device: torch.device
) -> None:
    block = Block().to(device)
    step = INSIDE[kind](block)
    g = graphed(step, admit_after=2)
    check(g, step, device, [3, 3, 3, 3, 5, 5, 5, 3])
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED or g.last.reason is Reason.COMPILED_INSIDE, g.last


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_calling_again_compiles_nothing_again(device: torch.device) -> None:
    """pytorch#156377: every call recompiled."""
    frames = 0

    def counting(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        nonlocal frames
        frames += 1
        return graph.forward

    block = Block().to(device)
    block.inner = torch.compile(block.inner, backend=counting)  # type: ignore[assignment]
    g = graphed(block, admit_after=2)
    x = torch.randn(3, 6, device=device)
    for _ in range(3):
        g(x)
    after_three = frames
    for _ in range(10):
        g(x)
    assert frames == after_three <= 2


@pytest.mark.slow
@pytest.mark.skipif(
    " " in sys.prefix,
    reason="inductor hands the linker paths unquoted, and the environment's has a space",
)
@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_kernels_of_inductor_are_right_or_refused(mode: str, device: torch.device) -> None:
    """pytorch#171894: a replay beside CUDA graphs of the compiler's own."""
    block = Block().to(device)
    twin = Block().to(device)
    twin.load_state_dict(block.state_dict())
    block.inner = torch.compile(block.inner, mode=mode)  # type: ignore[assignment]
    g = graphed(block, admit_after=2)
    check(g, twin, device, [3, 3, 3, 3, 3])
    assert g.last is not None
    if device.type == "cuda" and mode == "default":
        assert g.last.outcome is Outcome.REPLAYED, g.last


def test_a_runner_inside_a_compiled_function_runs_as_plain_code(device: torch.device) -> None:
    """The other way round."""
    g = graphed(lambda x: x * 2 + 1, admit_after=1)
    outer = torch.compile(lambda x: g(x) * 3, backend="eager")
    for _ in range(3):
        x = torch.randn(3, device=device)
        alike(outer(x), (x * 2 + 1) * 3)
