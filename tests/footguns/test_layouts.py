"""Inputs with unusual layouts (torchdynamo#1031, torchdynamo#959: layout lost)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from footguns.traces import alike
from graphs.replaying import check_replay, record, spoil
from ostinato import Outcome, graphed

LAYOUTS: dict[str, Callable[[torch.device], Tensor]] = {
    "plain": lambda d: torch.randn(6, 6, device=d),
    "transposed": lambda d: torch.randn(6, 6, device=d).t(),
    "expanded": lambda d: torch.randn(1, 6, device=d).expand(6, 6),
    "expanded-column": lambda d: torch.randn(6, 1, device=d).expand(6, 6),
    "one-value": lambda d: torch.randn((), device=d).expand(6, 6),
    "odd-offset": lambda d: torch.randn(37, device=d)[1:].view(6, 6),
    "odd-offset-3": lambda d: torch.randn(39, device=d)[3:].view(6, 6),
    "every-second": lambda d: torch.randn(12, 12, device=d)[::2, ::2],
    "padded-rows": lambda d: torch.randn(6, 10, device=d)[:, 2:8],
    "windows": lambda d: torch.randn(11, device=d).unfold(0, 6, 1),
    "permuted": lambda d: torch.randn(6, 2, 6, device=d).permute(2, 1, 0)[:, 1],
}

STEPS: dict[str, Callable[[Tensor], Any]] = {
    "elementwise": lambda x: x * 2 + 1,
    "matmul": lambda x: x @ x,
    "clone": lambda x: x.clone(),
    "empty-like": lambda x: torch.zeros_like(x) + x,
    "flat": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous() + 0,
    "strides": lambda x: {"y": x.cumsum(1), "stride": x.stride(), "dense": x.is_contiguous()},
    "branch": lambda x: x * 2 if x.is_contiguous() else x * 3,
    "returns-itself": lambda x: (x, x.t(), x * 2),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_result_and_its_strides_equal_eager(layout: str, step: str, device: torch.device) -> None:
    fn, make = STEPS[step], LAYOUTS[layout]
    g = graphed(fn, admit_after=1)
    g(make(device))
    for _ in range(2):
        check_replay(g, make(device))


@pytest.mark.parametrize("step", STEPS)
def test_one_runner_keeps_all_layouts_apart(step: str, device: torch.device) -> None:
    fn = STEPS[step]
    g = graphed(fn, admit_after=1)
    for _ in range(3):
        for make in LAYOUTS.values():
            spoil(g)
            x = make(device)
            alike(g(x), fn(x))
    assert g.report().replays >= 2 * len(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_that_reads_where_its_input_starts_is_never_wrong(
    layout: str, device: torch.device
) -> None:
    """A static input starts at the beginning of its memory; the caller's may not."""
    make = LAYOUTS[layout]

    def step(x: Tensor) -> Any:
        return {"y": x * (2 if x.storage_offset() else 3), "offset": x.storage_offset()}

    g = graphed(step, admit_after=1)
    for _ in range(3):
        x = make(device)
        alike(g(x), step(x))


def test_channels_last_stays_channels_last(device: torch.device) -> None:
    conv = torch.nn.Conv2d(3, 4, 3).to(device)
    g = graphed(conv, admit_after=1)
    for _ in range(3):
        for form in (torch.channels_last, torch.contiguous_format):
            x = torch.randn(2, 3, 8, 8, device=device).contiguous(memory_format=form)
            spoil(g)
            mine, wanted = g(x), conv(x)
            assert mine.stride() == wanted.stride()
            torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)
    assert g.report().recordings == 2


def test_a_view_that_eager_refuses_is_refused_after_a_replay_too(device: torch.device) -> None:
    g = record(lambda x: x.view(-1) * 2, torch.randn(6, 6, device=device))
    check_replay(g, torch.randn(6, 6, device=device))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            g(torch.randn(6, 6, device=device).t())
    check_replay(g, torch.randn(6, 6, device=device))


@pytest.mark.parametrize("layout", ["transposed", "odd-offset", "every-second", "padded-rows"])
def test_an_input_changed_in_place_is_changed_in_its_own_layout(
    layout: str, device: torch.device
) -> None:
    def step(x: Tensor) -> Tensor:
        x.mul_(2)
        x[0].add_(1)
        return x.sum()

    g = record(step, LAYOUTS[layout](device))
    for _ in range(3):
        check_replay(g, LAYOUTS[layout](device))


def test_writing_into_an_expanded_input_fails_as_eager_does(device: torch.device) -> None:
    g = graphed(lambda x: x.mul_(2), admit_after=1)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="single memory location"):
            g(torch.randn(1, 6, device=device).expand(6, 6))


def test_neighbours_of_a_slice_are_left_alone(device: torch.device) -> None:
    g = record(lambda x: x.mul_(2), torch.randn(12, 12, device=device)[::2, ::2])
    pool = torch.randn(12, 12, device=device)
    wanted = pool.clone()
    wanted[::2, ::2] *= 2
    g(pool[::2, ::2])
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    alike(pool, wanted)


def test_two_overlapping_views_of_one_tensor_stay_overlapping(device: torch.device) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    g = graphed(step, admit_after=1)
    for shift in (0, 2, 4, 6) * 2:
        pool = torch.randn(12, device=device)
        twin = pool.clone()
        spoil(g)
        alike(g(pool[0:6], pool[shift : shift + 6]), step(twin[0:6], twin[shift : shift + 6]))
        alike(pool, twin)


@pytest.mark.parametrize("kind", ["conj", "neg", "complex"])
def test_lazy_conjugates_and_negatives_are_read_as_what_they_stand_for(
    kind: str, device: torch.device
) -> None:
    def make() -> Tensor:
        z = torch.randn(4, dtype=torch.complex64, device=device)
        return {"conj": z.conj(), "neg": z.conj().imag, "complex": z}[kind]

    def step(x: Tensor) -> Tensor:
        return x * 2 + 1

    g = graphed(step, admit_after=1)
    for _ in range(4):
        x = make()
        alike(g(x).resolve_conj().resolve_neg(), step(x).resolve_conj().resolve_neg())


def test_a_wide_type_at_an_odd_offset_is_read_right(device: torch.device) -> None:
    """An address that is no multiple of sixteen must not meet a kernel chosen for one that is."""
    g = graphed(lambda x: x * 2, admit_after=1)
    for dtype in (torch.float16, torch.float64, torch.int8):
        for offset in (0, 1, 3, 0, 1, 3):
            x = torch.arange(70, device=device).to(dtype)[offset : offset + 64]
            spoil(g)
            alike(g(x), x * 2)
