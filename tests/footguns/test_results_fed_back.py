"""Results fed back as arguments (pytorch#152887, pytorch#175557: overwritten in a loop)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from footguns.traces import alike
from graphs.replaying import record, spoil
from ostinato import graphed

STEPS = 100


def rotate(x: Tensor) -> Tensor:
    return x.roll(1, 0) * 0.99 + x.flip(0) * 0.01


def test_x_becomes_f_of_x_a_hundred_times(device: torch.device) -> None:
    """pytorch#152887."""
    x = wanted = torch.randn(8, device=device)
    g = record(rotate, x)
    for _ in range(STEPS):
        spoil(g)
        x, wanted = g(x), rotate(wanted)
        torch.testing.assert_close(x, wanted)
    assert g.report().replays == STEPS


def test_x_becomes_f_of_x_on_leases(device: torch.device) -> None:
    """pytorch#152887: the argument of a call is the memory that the call will overwrite."""
    x = wanted = torch.randn(8, device=device)
    g = graphed(rotate, admit_after=1, outputs="leased")
    for _ in range(STEPS):
        lease: Any = g(x)
        x, wanted = lease.get(), rotate(wanted)
        torch.testing.assert_close(x, wanted)
    assert g.report().replays == STEPS - 1


class Decoder(nn.Module):
    """One step of attention over a growing or a fixed past."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, token: Tensor, past: tuple[Tensor, Tensor]) -> Any:
        q, k, v = self.qkv(token).chunk(3, -1)
        keys = torch.cat((past[0], k), 1)[:, -6:]
        values = torch.cat((past[1], v), 1)[:, -6:]
        return torch.softmax(q @ keys.mT, -1) @ values, (keys, values)


def test_a_past_of_fixed_size_is_carried_through_a_hundred_steps(device: torch.device) -> None:
    """pytorch#175557: `past = f(token, past)`."""
    decoder = Decoder().to(device)
    token = torch.randn(1, 1, 4, device=device)
    past: Any = (torch.zeros(1, 6, 4, device=device), torch.zeros(1, 6, 4, device=device))
    g = record(decoder, token, past)
    mine, theirs = (token, past), (token, past)
    for _ in range(STEPS):
        spoil(g)
        mine, theirs = g(*mine), decoder(*theirs)
        alike(mine, theirs)
    # The past that comes back is a slice, with other strides than the one made of zeros.
    assert g.report().replays == STEPS - 1


def test_a_past_that_grows_is_right_at_every_length(device: torch.device) -> None:
    """pytorch#175557: every length is another signature, and all are fed by each other."""

    def step(token: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        past = torch.cat((past, token), 1)
        return past.mean(1, keepdim=True) + token * 0.5, past

    # A CUDA recording takes a pool of 2 MiB at least: 40 lengths do not fit in either budget.
    g = graphed(step, admit_after=1, budget="64KiB" if device.type == "cpu" else "32MiB")
    for _ in range(2):  # the second time round they are replayed
        mine = theirs = (
            torch.ones(1, 1, 4, device=device), torch.ones(1, 1, 4, device=device),
        )  # fmt: skip
        for _ in range(40):
            mine, theirs = g(*mine), step(*theirs)
            spoil(g)
            alike(mine, theirs)
    assert g.report().replays > 0


def test_a_past_written_in_place_is_the_callers_own(device: torch.device) -> None:
    """pytorch#175557: a static cache, written at a position that advances on the device."""

    def step(token: Tensor, cache: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cache.index_copy_(0, position, token)
        return cache.sum(0, keepdim=True) * 0.1, cache, (position + 1) % 8

    def start() -> tuple[Tensor, Tensor, Tensor]:
        return (
            torch.ones(1, 4, device=device),
            torch.zeros(8, 4, device=device),
            torch.zeros(1, dtype=torch.long, device=device),
        )

    g = record(step, *start())
    mine, theirs = start(), start()
    own = mine[1]
    for _ in range(STEPS):
        spoil(g)
        mine, theirs = g(*mine), step(*theirs)
        assert mine[1] is own
        alike(mine, theirs)
    assert g.report().replays == STEPS


@pytest.mark.parametrize("outputs", ["owned", "leased"])
def test_two_states_that_swap_places_stay_apart(outputs: Any, device: torch.device) -> None:
    """pytorch#152887."""

    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return b * 0.9 + 1, a * 0.8 - 1

    g: Any = graphed(step, admit_after=1, outputs=outputs)
    a = b = torch.zeros(3, device=device)
    a_wanted = b_wanted = a
    for _ in range(STEPS):
        a, b = g(a, b)
        if outputs == "leased":
            a, b = a.get(), b.get()
        a_wanted, b_wanted = step(a_wanted, b_wanted)
        alike([a, b], [a_wanted, b_wanted])


def test_two_runners_that_feed_each_other(device: torch.device) -> None:
    """pytorch#175557."""
    forth, back = (
        record(rotate, torch.zeros(5, device=device)),
        record(torch.tanh, torch.zeros(5, device=device)),
    )
    x = wanted = torch.randn(5, device=device)
    for _ in range(STEPS):
        x, wanted = back(forth(x)), torch.tanh(rotate(wanted))
        spoil(forth)
        spoil(back)
        torch.testing.assert_close(x, wanted)
