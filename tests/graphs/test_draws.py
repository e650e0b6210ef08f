"""Under one seed a replay draws what an eager run draws; padding is the one exception."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ostinato.graphs import Buckets, Outcome, graphed

Step = Callable[[Tensor], Tensor]

DRAWS: dict[str, Step] = {
    "two dropouts": lambda x: functional.dropout(functional.dropout(x, 0.3) + 1, 0.2),
    "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.3, True),
    "dropout2d": lambda x: functional.dropout2d(x[None, :, :, None], 0.3),
    "attention": lambda x: functional.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], dropout_p=0.4
    ),
    "rrelu": lambda x: functional.rrelu(x, training=True),
    "gumbel_softmax": lambda x: functional.gumbel_softmax(x),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 3),
    "normal": lambda x: torch.normal(x, 1.0),
    "few normals": lambda x: x[:1, :3] + torch.randn(3),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "randint": lambda x: x + torch.randint(0, 9, (16,)),
    "randperm": lambda x: x[:, torch.randperm(16)],
    "poisson": lambda x: torch.poisson(x.exp()),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("admit_after", [1, 2])
def test_every_call_draws_what_an_eager_one_draws(name: str, admit_after: int) -> None:
    step = DRAWS[name]
    given = [torch.randn(4, 16) for _ in range(5)]
    torch.manual_seed(3)
    expected = [step(x) for x in given]
    after = torch.get_rng_state()
    runner = graphed(step, admit_after=admit_after, backend="tape")
    torch.manual_seed(3)
    for x, theirs in zip(given, expected, strict=True):
        assert torch.equal(runner(x), theirs)
    assert torch.equal(torch.get_rng_state(), after)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def bucketed(step: Callable[[Tensor], object]) -> Callable[[Tensor], object]:
    runner = graphed(step, buckets={"x": Buckets(dim=0, sizes=(8,))}, admit_after=1, backend="tape")
    for rows in (8, 5):  # recorded, then its padding is checked
        runner(torch.ones(rows, 4))
    return runner


def test_draws_of_a_size_of_their_own_are_those_of_eager_in_a_bucket_too() -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, torch.rand(3)

    runner = bucketed(step)
    torch.manual_seed(3)
    expected = [torch.rand(3) for _ in range(3)]
    torch.manual_seed(3)
    for rows, theirs in zip((5, 8, 2), expected, strict=True):
        assert torch.equal(runner(torch.ones(rows, 4))[1], theirs)  # type: ignore[index]


def test_a_padded_call_draws_for_the_padding_as_eager_does_at_the_buckets_size() -> None:
    def step(x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5)

    runner = bucketed(step)
    torch.manual_seed(3)
    expected = [step(torch.ones(8, 4)) for _ in range(3)]
    torch.manual_seed(3)
    for rows, theirs in zip((5, 8, 2), expected, strict=True):
        assert torch.equal(runner(torch.ones(rows, 4)), theirs[:rows])  # type: ignore[arg-type]
