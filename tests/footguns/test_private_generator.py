"""A forward that draws from a generator of its own (pytorch#91950: unexpected generator).

Registered and replayed, or run eagerly with the reason; the numbers and the state of every
generator are those of an eager loop either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from footguns.traces import alike, random_state, seed
from graphs.replaying import spoil
from ostinato import Outcome, Reason, graphed
from ostinato.graphs import Runner

Draw = Callable[[Tensor, Generator], Tensor]

DRAWS: dict[str, Draw] = {
    "rand": lambda x, own: x + torch.rand(x.shape, generator=own, device=x.device),
    "randn": lambda x, own: x + torch.randn(x.shape, generator=own, device=x.device),
    "in-place": lambda x, own: torch.empty_like(x).normal_(generator=own) * x,
    "bernoulli": lambda x, own: x * torch.bernoulli(torch.full_like(x, 0.5), generator=own),
    "multinomial": lambda x, own: torch.multinomial(x.abs() + 0.1, 2, generator=own),
    "both": lambda x, own: torch.rand_like(x) - torch.rand(x.shape, generator=own, device=x.device),
}


def eager_and_mine(
    make: Callable[[Generator], Callable[[Tensor], Any]], device: torch.device, calls: int = 5
) -> tuple[Any, Any, Runner[..., Any]]:
    """Run the same step eagerly and recorded, from the same seeds; return results and states."""
    outcomes = []
    for wrap in (lambda fn: fn, lambda fn: graphed(fn, admit_after=1)):
        seed()
        own = Generator(device).manual_seed(1)
        fn = wrap(make(own))
        results = []
        for i in range(calls):
            if isinstance(fn, Runner):
                spoil(fn)
            results.append(fn(torch.full((8,), float(i), device=device)))
        outcomes.append((results, own.get_state(), random_state(device)))
    return outcomes[0], outcomes[1], fn


@pytest.mark.parametrize("kind", DRAWS)
def test_draws_from_a_private_generator_are_those_of_an_eager_loop(
    kind: str, device: torch.device
) -> None:
    draw = DRAWS[kind]
    eager, mine, g = eager_and_mine(lambda own: lambda x: draw(x, own), device)
    alike(mine[:2], eager[:2])
    assert mine[2] == eager[2]
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED or g.last.reason is Reason.UNREGISTERED_GENERATOR, (
        g.last
    )


def test_dropout_from_the_default_generator_is_that_of_an_eager_loop(device: torch.device) -> None:
    dropout = nn.Dropout(0.5).train()
    eager, mine, g = eager_and_mine(lambda _: dropout, device)
    alike(mine[0], eager[0])
    assert mine[2] == eager[2]
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED


def test_seeding_between_replays_is_seen(device: torch.device) -> None:
    own = Generator(device)
    g = graphed(lambda x: x + torch.rand(8, generator=own, device=x.device), admit_after=1)
    x = torch.zeros(8, device=device)
    drawn = []
    for number in (7, 7, 8, 7):
        own.manual_seed(number)
        drawn.append(g(x))
        own.manual_seed(number)
        torch.testing.assert_close(drawn[-1], torch.rand(8, generator=own, device=device))
    assert not torch.equal(drawn[1], drawn[2])


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_another_generator_in_its_place_is_seen(device: torch.device) -> None:
    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = Generator(device).manual_seed(1)

        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand(8, generator=self.own, device=x.device)

    sampler = Sampler()
    g = graphed(sampler, admit_after=1)
    x = torch.zeros(8, device=device)
    for number in (1, 2, 3):
        sampler.own = Generator(device).manual_seed(number)
        alike(g(x), torch.rand(8, generator=Generator(device).manual_seed(number), device=device))
        g(x)


def test_a_generator_given_as_an_argument_is_the_one_drawn_from(device: torch.device) -> None:
    g = graphed(lambda x, own: x + torch.rand(8, generator=own, device=x.device), admit_after=1)
    x = torch.zeros(8, device=device)
    for number in (1, 1, 2, 2, 1):
        own = Generator(device).manual_seed(number)
        first, second = g(x, own), g(x, own)
        twin = Generator(device).manual_seed(number)
        alike(first, torch.rand(8, generator=twin, device=device))
        alike(second, torch.rand(8, generator=twin, device=device))


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_a_generator_made_and_seeded_inside_draws_the_same_every_time(
    device: torch.device,
) -> None:
    def step(x: Tensor) -> Tensor:
        own = Generator(x.device).manual_seed(3)
        return x + torch.rand(8, generator=own, device=x.device)

    g = graphed(step, admit_after=1)
    for i in range(4):
        x = torch.full((8,), float(i), device=device)
        alike(g(x), step(x))


@pytest.mark.filterwarnings("ignore::ostinato.OstinatoWarning")
def test_seeding_inside_the_step_draws_the_same_every_time(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return x + torch.rand_like(x)

    g = graphed(step, admit_after=1)
    for i in range(4):
        x = torch.full((8,), float(i), device=device)
        mine = g(x)
        after = random_state(device)
        alike(mine, step(x))
        assert random_state(device) == after


def test_a_refused_recording_has_drawn_once(device: torch.device) -> None:
    def make(own: Generator) -> Callable[[Tensor], Tensor]:
        def step(x: Tensor) -> Tensor:
            y = x + torch.rand(8, generator=own, device=x.device) - torch.rand_like(x)
            return y[y > 0]

        return step

    eager, mine, g = eager_and_mine(make, device)
    alike(mine[:2], eager[:2])
    assert mine[2] == eager[2]
    assert g.last is not None
    assert g.last.reason is Reason.DATA_DEPENDENT_SHAPE


@pytest.mark.gpu
def test_a_cpu_generator_in_a_gpu_step_runs_eagerly_with_a_reason() -> None:
    own = Generator("cpu").manual_seed(1)
    g = graphed(lambda x: x + torch.rand(8, generator=own).to(x.device), admit_after=1)
    results = [g(torch.zeros(8, device="cuda:0")) for _ in range(3)]
    own.manual_seed(1)
    alike(results, [torch.rand(8, generator=own).to("cuda:0") for _ in range(3)])
    assert g.last is not None
    assert g.last.outcome is Outcome.EAGER
    assert g.last.reason in (Reason.HOST_COPY, Reason.UNREGISTERED_GENERATOR)
