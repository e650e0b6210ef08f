"""Observe: what a run takes from outside, writes, draws, and how it is undone."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs.observe import observe

CPU = torch.device("cpu")


@pytest.fixture(params=[torch.no_grad, torch.inference_mode], autouse=True)
def _without_gradients(request: pytest.FixtureRequest) -> object:
    with request.param():
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4)


def test_the_result_is_what_the_step_returned(x: Tensor) -> None:
    result = object()
    assert observe(lambda: result, [x], device=CPU).result is result


def test_views_are_no_compute_calls(x: Tensor) -> None:
    assert observe(lambda: (x.T[1:].reshape(-1) * 2).view(3, 3), [x], device=CPU).ops == 2


def test_weights_are_external_once_each_and_inputs_are_not(x: Tensor) -> None:
    linear = nn.Linear(4, 4)
    seen = observe(lambda: linear(linear(x)), [x], device=CPU)
    assert {id(t) for t in seen.externals} == {id(linear.weight), id(linear.bias)}
    assert len(seen.externals) == 2
    assert not seen.written_externals


def test_what_shares_memory_with_an_input_is_not_external(x: Tensor) -> None:
    alias = x[1:]
    assert not observe(lambda: alias * 2, [x], device=CPU).externals


def test_constants_made_inside_are_not_external(x: Tensor) -> None:
    assert not observe(lambda: x + torch.tensor(5.0), [x], device=CPU).externals


def test_writes_are_told_apart_by_whose_memory_they_reach(x: Tensor) -> None:
    cache, other, untouched = torch.zeros(8, 4), torch.zeros(2), torch.zeros(2)

    def step() -> None:
        cache[2:5].add_(x)
        x[0].zero_()
        other.add(1).mul_(2)

    seen = observe(step, [untouched, x], device=CPU)
    assert [id(t) for t in seen.written_externals] == [id(cache)]
    assert seen.written_inputs == {1}


def test_restore_puts_written_externals_back_in_any_order_of_writes(x: Tensor) -> None:
    cache = torch.arange(8.0)
    before = cache.clone()

    def step() -> None:
        cache[1:4].add_(1)
        cache.mul_(2)
        cache[0:2] = 7

    seen = observe(step, [x], device=CPU)
    assert not torch.equal(cache, before)
    seen.restore()
    assert torch.equal(cache, before)


def test_running_statistics_are_written_although_the_schema_does_not_say_so() -> None:
    x, norm = torch.randn(4, 3, 5, 5), nn.BatchNorm2d(3)
    assert norm.running_mean is not None
    seen = observe(lambda: norm(x), [x], device=CPU)
    assert any(t is norm.running_mean for t in seen.written_externals)
    seen.restore()
    assert norm.running_mean.eq(0).all()


def test_a_leaf_that_requires_grad_is_written_and_restored(x: Tensor) -> None:
    weight = nn.Parameter(torch.zeros(3, 4))
    seen = observe(lambda: weight.data.add_(x), [x], device=CPU)
    seen.restore()
    assert weight.eq(0).all()


def test_drawing_is_seen_by_the_state_and_not_by_the_name(x: Tensor) -> None:
    dropout = nn.functional.dropout
    assert observe(lambda: dropout(x, 0.5), [x], device=CPU).draws
    assert not observe(lambda: dropout(x, 0.5, training=False), [x], device=CPU).draws
    attend = nn.functional.scaled_dot_product_attention
    q = x[None, None]
    assert not observe(lambda: attend(q, q, q), [x], device=CPU).draws


def test_private_generators_are_listed_and_the_default_one_is_not() -> None:
    private = torch.Generator().manual_seed(7)

    def step() -> None:
        torch.rand(2, generator=private)
        torch.rand(2, generator=private)
        torch.rand(2, generator=torch.default_generator)

    seen = observe(step, [], device=CPU)
    (found,) = seen.generators
    assert found.initial_seed() == private.initial_seed() == 7
    assert seen.draws


def test_the_devices_of_compute_calls_are_listed(x: Tensor) -> None:
    def step() -> Tensor:
        return torch.empty(2, device="meta") + 1

    assert observe(step, [x], device=CPU).devices == frozenset()
    assert observe(lambda: x * 2, [x], device=CPU).devices == {CPU}


def test_a_tensor_that_outlives_the_run_outside_the_result_is_an_escape(x: Tensor) -> None:
    module = nn.Module()

    def step() -> Tensor:
        module.last = x * 2
        return x + 1

    (escape,) = observe(step, [x], device=CPU).escapes
    assert escape.op == "aten.mul.Tensor"
    assert escape.where is not None
    assert "module.last = x * 2" in escape.where


def test_results_and_dropped_intermediates_do_not_escape(x: Tensor) -> None:
    assert not observe(lambda: {"a": [(x * 2).exp()]}, [x], device=CPU).escapes


def test_other_threads_are_not_watched(x: Tensor) -> None:
    def step() -> Tensor:
        other = threading.Thread(target=lambda: (torch.ones(2).sum().item(), torch.rand(2)))
        other.start()
        other.join()
        return x * 2

    seen = observe(step, [x], device=CPU)
    assert seen.ops == 1
    assert not seen.refusals


def test_an_exception_passes_through_and_leaves_nothing_patched(x: Tensor) -> None:
    synchronize = torch.cpu.synchronize

    def step() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        observe(step, [x], device=CPU)
    assert torch.cpu.synchronize is synchronize
    assert x.sum().item() == x.sum().item()


def test_a_collective_is_seen(x: Tensor) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        seen = observe(lambda: torch.distributed.all_reduce(x), [x], device=CPU)
    finally:
        torch.distributed.destroy_process_group()
    assert seen.has_collective
    assert not observe(lambda: x + 1, [x], device=CPU).has_collective
