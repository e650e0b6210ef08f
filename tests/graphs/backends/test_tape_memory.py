"""The tape: writes, views, aliases and addresses behave in a replay as they do in eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphs.backends.taping import check_replays, put, record, tensors_of

MODES = [torch.no_grad, torch.inference_mode]


@pytest.fixture(params=MODES, autouse=True)
def _without_gradients(request: pytest.FixtureRequest) -> object:
    with request.param():
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4)


def test_an_input_written_in_place_is_written_again(x: Tensor) -> None:
    check_replays(lambda: x.add_(1), [x])


def test_a_write_through_a_view_of_an_input_is_made_again(x: Tensor) -> None:
    check_replays(lambda: (x[1:].mul_(2).sum(), x.T), [x])


def test_a_cache_row_is_written_where_the_position_says() -> None:
    x, cache, position = torch.randn(1, 4), torch.zeros(8, 4), torch.tensor([3])
    check_replays(lambda: cache.index_copy_(0, position, x).sum(), [x, position], [cache])


def test_a_slice_of_a_cache_is_assigned(x: Tensor) -> None:
    cache = torch.zeros(8, 4)

    def step() -> object:
        cache[2] = x[0]
        cache[3:5] += x[1]
        return cache.sum(), cache[3]

    check_replays(step, [x], [cache])


def test_inputs_and_their_views_come_back_as_such(x: Tensor) -> None:
    recording = check_replays(lambda: (x, x[1], x.T), [x])
    assert recording.nodes == 0
    assert {t.untyped_storage().data_ptr() for t in tensors_of(recording.result)} == {
        x.untyped_storage().data_ptr()
    }


def test_one_tensor_returned_twice_with_its_views_is_one_memory(x: Tensor) -> None:
    def step() -> object:
        y = x * 2
        return {"a": y, "b": y, "row": y[1:], "turned": y.T}

    recording = check_replays(step, [x])
    result = recording.result
    assert isinstance(result, dict)
    assert result["a"] is result["b"]
    assert result["a"].data_ptr() == result["turned"].data_ptr()


def test_views_of_memory_from_outside_come_back_as_views(x: Tensor) -> None:
    kept = torch.zeros(3, 4)

    def step() -> object:
        kept.copy_(x)
        return kept[1:], kept, kept.T

    check_replays(step, [x], [kept])


def test_out_arguments_are_filled(x: Tensor) -> None:
    buffer = torch.empty(3, 4)
    check_replays(
        lambda: (torch.add(x, 1, out=buffer), torch.mul(x, 2, out=torch.empty(3, 4))),
        [x],
        [buffer],
    )


def test_chains_of_writes_through_overlapping_views_keep_their_order(x: Tensor) -> None:
    def step() -> object:
        y = x + 1
        row = y[1]
        row.mul_(3)
        part = y.view(-1)[2:5]
        part.copy_(x[0, :3])
        y[0].zero_()
        return y.sum(), row * 1, part * 1

    check_replays(step, [x])


def test_shapes_changed_in_place_are_followed(x: Tensor) -> None:
    def step() -> object:
        y = x * 2
        y.unsqueeze_(0).squeeze_().t_().add_(1)
        z = torch.nn.functional.layer_norm(x, (4,))
        z.t_()
        return y, z * 2, z

    check_replays(step, [x])


def test_expanded_inputs_are_read_as_they_are() -> None:
    base = torch.randn(1, 4)
    wide = base.expand(3, 4)
    check_replays(lambda: (wide * 2, wide.contiguous()), [base])


def test_a_write_to_one_of_two_overlapping_inputs_is_seen_by_the_other() -> None:
    base = torch.randn(6)
    left, right = base[:4], base[2:]
    check_replays(lambda: (left.add_(1), right * 2, left.clone()), [base])


def test_batch_norm_in_train_mode_moves_its_statistics_once_per_replay() -> None:
    x, norm = torch.randn(4, 3, 5, 5), nn.BatchNorm2d(3)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    state: list[Tensor] = [norm.running_mean, norm.running_var, norm.num_batches_tracked]
    check_replays(lambda: norm(x) * 2, [x], state)


def test_a_weight_updated_in_place_is_seen_by_the_next_replay(x: Tensor) -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    recording = record(lambda: x @ weight, [x])
    put([torch.eye(4)], [weight])
    recording.replay()
    torch.testing.assert_close(recording.result, x, rtol=0, atol=0)


def test_a_weight_whose_data_was_replaced_is_not_seen_as_on_a_gpu(x: Tensor) -> None:
    weight = nn.Parameter(torch.eye(4))
    recording = record(lambda: x @ weight, [x])
    weight.data = torch.zeros(4, 4)
    recording.replay()
    torch.testing.assert_close(recording.result, x, rtol=0, atol=0)


def test_an_activation_kept_by_a_module_is_refreshed_at_its_address(x: Tensor) -> None:
    kept: list[Tensor] = []

    def step() -> object:
        kept[:] = [x * 2]
        return x + 1

    recording = record(step, [x])
    put([torch.ones(3, 4)], [x])
    recording.replay()
    assert kept[0].eq(2).all()


def test_results_that_no_memory_could_be_given_to_are_copied_to_their_address(x: Tensor) -> None:
    recording = record(lambda: torch.nn.functional.layer_norm(x, (4,)), [x])
    (result,) = tensors_of(recording.result)
    address = result.data_ptr()
    put([torch.randn(3, 4)], [x])
    recording.replay()
    expected = torch.nn.functional.layer_norm(x, (4,))
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert result.data_ptr() == address


def test_constants_are_made_once_and_views_never() -> None:
    x = torch.randn(3, 4)
    recording = record(
        lambda: (x + torch.arange(12.0).view(3, 4).T.reshape(3, 4) * 2).T[1:].exp(), [x]
    )
    assert recording.nodes == 2  # the addition and the exponential


def test_a_constant_that_is_written_is_made_anew_by_every_replay(x: Tensor) -> None:
    def step() -> object:
        total = torch.zeros(3, 4)
        total += x
        return total * 2

    check_replays(step, [x])


def test_what_nothing_needs_is_not_computed(x: Tensor) -> None:
    def step() -> object:
        (x * 3).exp().sum()
        return x + 1

    assert record(step, [x]).nodes == 1


def test_intermediates_share_one_arena() -> None:
    x = torch.randn(1 << 16)

    def step() -> object:
        y = x
        for _ in range(50):
            y = y + 1
        return y.sum()

    recording = check_replays(step, [x])
    assert recording.bytes < 3 * x.nbytes


def test_random_numbers_are_drawn_as_in_eager(x: Tensor) -> None:
    def step() -> object:
        return (
            torch.rand(3),
            torch.randn(3, 4),
            torch.randint(0, 9, (3,)),
            torch.randperm(5),
            torch.empty(3).uniform_(),
            torch.nn.functional.dropout(x, 0.5),
            torch.bernoulli(x.sigmoid()),
            torch.multinomial(x.abs() + 0.1, 2),
        )

    check_replays(step, [x])


def test_a_private_generator_moves_on_with_every_replay() -> None:
    generator = torch.Generator()
    recording = record(lambda: torch.rand(4, generator=generator))
    generator.manual_seed(5)
    expected = [torch.rand(4, generator=generator) for _ in range(2)]
    generator.manual_seed(5)
    for numbers in expected:
        recording.replay()
        torch.testing.assert_close(recording.result, numbers, rtol=0, atol=0)


def test_an_unused_draw_still_moves_the_random_state() -> None:
    def step() -> object:
        torch.rand(3)
        return torch.rand(3)

    check_replays(step)
