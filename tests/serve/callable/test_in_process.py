"""What batches are made of follows what was recorded."""

from __future__ import annotations

import asyncio

import pytest
from torch import Tensor

from ostinato.graphs import graphed
from ostinato.serve.callable import Servable, TensorSpec
from ostinato.serve.callable.arrays import Array, from_numbers, numbers
from ostinato.serve.callable.batching import Limits
from ostinato.serve.callable.in_process import InProcess
from ostinato.serve.callable.model import Model
from ostinato.serve.callable.service import Numbers

SPEC = {"x": TensorSpec("FP32", (-1, 2))}
LIMITS = Limits(max_batch=8, max_delay_s=0.02)


def doubled(x: Tensor) -> Tensor:
    return x * 2


def rows(count: int) -> dict[str, Array]:
    return {"x": from_numbers("x", "FP32", (count, 2), list(range(2 * count)))}


def ask(service: InProcess, *counts: int) -> Numbers:
    """Send requests of so many rows at once, look at their answers, and return what was done."""

    async def run() -> Numbers:
        await service.warm()
        before = service.count()
        try:
            answers = await asyncio.gather(*(service.infer(rows(count)) for count in counts))
        finally:
            await service.close()
        for answer, count in zip(answers, counts, strict=True):
            assert numbers(answer["output"]) == [2 * each for each in range(2 * count)]
        after = service.count()
        assert after.batches - before.batches == after.replays - before.replays + sum(
            after.eager.values()
        ) - sum(before.eager.values())
        return after

    return asyncio.run(run())


def test_company_never_makes_a_batch_that_is_not_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = InProcess(Model(Servable(doubled, SPEC, batch_sizes=(1, 2))), LIMITS)
    done = ask(service, *[1] * 7)
    assert (done.batches, done.rows, done.eager) == (4, 7, {})
    said = [each.message for each in caplog.records if "batch_sizes" in each.message]
    assert len(said) == 1
    assert "at most 2 rows" in said[0]
    assert "up to --max-batch 8" in said[0]


def test_a_request_of_more_rows_than_are_recorded_runs_alone() -> None:
    service = InProcess(Model(Servable(doubled, SPEC, batch_sizes=(1, 2))), LIMITS)
    done = ask(service, 5, 1, 1)
    assert done.batches == 2
    assert sum(done.eager.values()) == 1


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (1, 16)])
def test_where_all_sizes_are_recorded_nothing_is_said(
    caplog: pytest.LogCaptureFixture, sizes: tuple[int, ...]
) -> None:
    done = ask(InProcess(Model(Servable(doubled, SPEC, batch_sizes=sizes)), LIMITS), *[1] * 8)
    assert (done.batches, done.eager) == (1, {})
    assert not [each for each in caplog.records if "batch_sizes" in each.message]


def test_what_is_graphed_already_has_sizes_of_its_own() -> None:
    model = Model(Servable(graphed(doubled), SPEC, batch_sizes=(1, 2)))
    assert model.largest_recorded is None
    assert ask(InProcess(model, LIMITS), *[1] * 8).batches == 1
