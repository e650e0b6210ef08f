"""A tensor made on the host inside forward (pytorch#171894, PR #172156; FlagGems#4472: garbage).

Refused with the line, or right: never garbage, whatever happens to the host memory afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from footguns.traces import alike, check_never_garbage
from graphs.replaying import spoil
from ostinato import Outcome, Reason, graphed

Made = Callable[[Tensor, int], Tensor]

MADE: dict[str, Made] = {
    "scalar": lambda x, n: x * torch.tensor(n, device=x.device),
    "float-scalar": lambda x, n: x / torch.tensor(float(n), device=x.device, dtype=x.dtype),
    "on-the-host": lambda x, n: x * torch.tensor(n),
    "list": lambda x, n: x + torch.tensor([n, n + 1, n + 2], device=x.device),
    "as-tensor": lambda x, n: x + torch.as_tensor([n] * 3).to(x.device),
    "from-numpy": lambda x, n: x + torch.from_numpy(np.full(3, n)).to(x.device),
    "new-tensor": lambda x, n: x + x.new_tensor([n, 0, n]),
    "arange-host": lambda x, n: x + torch.arange(n, n + 3).to(x.device),
    "full": lambda x, n: x + torch.full((3,), n, device=x.device),
    "index-list": lambda x, n: x[[n % 3, 0, n % 2]],
    "index-array": lambda x, n: x[np.array([n % 3, 1])],
    "set-item": lambda x, n: x.clone().index_fill_(0, torch.tensor([n % 3], device=x.device), n),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_number_copied_to_the_device_inside_is_never_garbage(
    kind: str, device: torch.device
) -> None:
    calls = [(torch.randn(3, device=device), n) for n in (1, 2, 2, 5)]
    check_never_garbage(MADE[kind], calls, between=reuse_host_memory)


def reuse_host_memory(_: int = 0) -> None:
    """Overwrite host memory that a replay could still be reading from."""
    for size in (1, 3, 4, 8, 64):
        junk = torch.full((size,), 1e9)
        if torch.cuda.is_available():
            junk.pin_memory().fill_(-1e9)


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [False, True])
def test_a_pinned_scalar_that_is_copied_inside_is_refused_with_its_line(pinned: bool) -> None:
    """FlagGems#4472."""

    def step(x: Tensor) -> Tensor:
        n = torch.tensor(3.0)
        if pinned:
            n = n.pin_memory()
        return x * n.to(x.device, non_blocking=True)

    g = check_never_garbage(
        step, [(torch.randn(3, device="cuda:0"),) for _ in range(3)], between=reuse_host_memory
    )
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.HOST_COPY), g.last
    # Pinning copies on the host and is let through on some releases; the copy after it never is.
    lines = ("n.pin_memory()", "n.to(x.device") if pinned else ("n.to(x.device",)
    assert any(line in g.last.detail for line in lines), g.last


@pytest.mark.gpu
def test_a_list_copied_to_the_gpu_inside_is_refused_with_its_line() -> None:
    """pytorch#171894."""

    def step(x: Tensor) -> Tensor:
        return x + torch.tensor([1.0, 2.0, 3.0], device=x.device)

    g = check_never_garbage(
        step, [(torch.randn(3, device="cuda:0"),) for _ in range(3)], between=reuse_host_memory
    )
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.HOST_COPY), g.last
    assert "torch.tensor([1.0, 2.0, 3.0], device=x.device)" in g.last.detail


class Scaled:
    """Makes its tensor from state that changes between calls."""

    def __init__(self) -> None:
        self.n = 1
        self.numbers = [1.0, 2.0, 3.0]
        self.array = np.array([1.0, 2.0, 3.0], dtype=np.float32)
        self.host = torch.tensor([1.0, 2.0, 3.0])

    def by_attribute(self, x: Tensor) -> Tensor:
        return x * torch.tensor(self.n, device=x.device)

    def by_list(self, x: Tensor) -> Tensor:
        return x * torch.tensor(self.numbers, device=x.device)

    def by_array(self, x: Tensor) -> Tensor:
        return x * torch.from_numpy(self.array).to(x.device)

    def by_array_element(self, x: Tensor) -> Tensor:
        return x * float(self.array[0])

    def by_host_tensor(self, x: Tensor) -> Tensor:
        return x * self.host.to(x.device)

    def change(self, number: int) -> None:
        self.n = number
        self.numbers[0] = float(number)
        self.array[0] = float(number)
        self.host[0] = float(number)


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
@pytest.mark.parametrize(
    "kind", ["by_attribute", "by_list", "by_array", "by_array_element", "by_host_tensor"]
)
def test_a_tensor_made_from_state_follows_the_state(kind: str, device: torch.device) -> None:
    scaled = Scaled()
    check_never_garbage(
        getattr(scaled, kind),
        [(torch.randn(3, device=device),) for _ in range(3)],
        between=lambda number: scaled.change(number // 2),
    )


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_a_tensor_made_from_a_closed_over_number_follows_it(device: torch.device) -> None:
    n = 1

    def step(x: Tensor) -> Tensor:
        return x + torch.tensor(n, device=x.device)

    g = graphed(step, admit_after=1)
    for n in (1, 1, 1, 2, 2, 7):  # noqa: B007 - read by the closure
        x = torch.randn(3, device=device)
        spoil(g)
        alike(g(x), step(x))


def test_a_constant_made_once_stays_what_it_was_made(device: torch.device) -> None:
    """A replay may add to it in place; the next call must start from the constant again."""

    def step(x: Tensor) -> Tensor:
        total = torch.tensor([1.0, 1.0, 1.0]) if x.device.type == "cpu" else x.new_ones(3)
        total += x
        return total

    check_never_garbage(step, [(torch.randn(3, device=device),) for _ in range(3)])
