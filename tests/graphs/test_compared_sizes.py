"""When a padded call needs no comparison any more: arithmetic, and what it saves users from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import spoil
from ostinato import Buckets, Outcome, Reason, graphed
from ostinato.graphs.compared_sizes import ComparedSizes


def known(buckets: tuple[int, ...], *compared: tuple[int, ...], **options: bool) -> ComparedSizes:
    made = ComparedSizes(buckets, **options)
    for sizes in compared:
        made.note(sizes)
    return made


# The rule.


def test_a_full_bucket_has_nothing_to_compare() -> None:
    assert known((8, 4)).trusts((8, 4))


def test_a_full_bucket_says_nothing_of_padded_ones() -> None:
    assert not any(known((8,), (8,)).trusts((n,)) for n in range(1, 8))


def test_one_size_speaks_for_itself_alone() -> None:
    one = known((8,), (5,))
    assert [n for n in range(1, 9) if one.trusts((n,))] == [5, 8]


def test_two_sizes_speak_for_the_others_but_not_for_a_single_row() -> None:
    two = known((8,), (5,), (4,))
    assert [n for n in range(1, 9) if two.trusts((n,))] == [2, 3, 4, 5, 6, 7, 8]


def test_sizes_that_are_all_even_say_nothing_of_odd_ones() -> None:
    even = known((16,), (6,), (4,), (12,))
    assert [n for n in range(1, 17) if even.trusts((n,))] == [2, 4, 6, 8, 10, 12, 14, 16]


def test_a_single_row_speaks_for_a_single_row() -> None:
    one = known((8,), (1,))
    assert [n for n in range(1, 9) if one.trusts((n,))] == [1, 8]
    assert not known((8,), (1,), (5,)).trusts((4,))


@pytest.mark.parametrize("other", [(3, 8), (8, 3), (1, 3), (3, 1)])
def test_other_axes_that_are_padded_are_another_way(other: tuple[int, int]) -> None:
    both = known((8, 8), *product((3, 4), (3, 4)))
    assert both.trusts((5, 6))
    assert not both.trusts(other)


def test_each_axis_needs_sizes_of_its_own() -> None:
    first = known((8, 8), (3, 4), (3, 5))
    assert first.trusts((3, 6))
    assert not first.trusts((4, 4))
    first.note((4, 4))
    assert first.trusts((5, 7))


def test_what_cannot_be_compared_is_looked_at_once() -> None:
    draws = known((8,), can_tell=False)
    assert not draws.trusts((5,))
    draws.note((8,))
    assert not draws.trusts((5,))
    draws.note((5,))
    assert all(draws.trusts((n,)) for n in range(1, 9))


def test_after_a_change_of_weights_nothing_was_compared() -> None:
    two = known((8,), (5,), (4,))
    assert two.trusts((5,))
    assert two.trusted == {(5,)}
    again = two.anew()
    assert again.trusts((8,))
    assert not again.trusts((5,))
    assert not known((8,), (5,), can_tell=False).anew().trusts((5,))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_few_comparisons_settle_every_call(axes: int) -> None:
    made = known((8,) * axes)
    compared = 0
    for sizes in product(range(1, 9), repeat=axes):
        if not made.trusts(sizes):
            compared += 1
            made.note(sizes)
    # Three for each padded axis at most, and one for each way of padding.
    assert compared <= 3**axes * 3 * axes


def test_what_is_kept_of_trusted_sizes_is_bounded() -> None:
    made = known((10_000,), (2,), (3,))
    assert all(made.trusts((n,)) for n in range(2, 10_001))
    assert len(made.trusted) == 4096


# What it saves users from.


def follow(fn: Callable[..., Any], calls: list[tuple[Tensor, ...]], **options: Any) -> Any:
    """Make the calls; insist that each answer is the eager one."""
    runner = graphed(fn, admit_after=1, **options)
    for number, given in enumerate(calls):
        spoil(runner)
        expected = fn(*given)
        torch.testing.assert_close(runner(*given), expected, msg=f"call {number}")
    return runner


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    torch.manual_seed(7)
    with torch.no_grad():
        yield


def lengths(*sizes: int) -> list[tuple[Tensor, ...]]:
    return [(torch.randn(2, n, 8),) for n in sizes]


def _attention(x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x)


LAYER = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
ONE_ROW_HIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": _attention,
    "encoder layer": lambda x: LAYER(x),
    "mean": lambda x: x.mean(1),
    "median": lambda x: x.median(1).values,
    "flip": lambda x: x.flip(1),
    "sort": lambda x: x.sort(1).values,
    "argsort": lambda x: x.argsort(1),
    "norm over length": lambda x: torch.layer_norm(x.mT.contiguous(), (x.shape[1],)),
    "middle": lambda x: x[:, x.shape[1] // 2],
    "softmax over length": lambda x: x.softmax(1),
}


@pytest.mark.parametrize("first", [(1, 1), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("fn", ONE_ROW_HIDES.values(), ids=list(ONE_ROW_HIDES))
def test_repeated_rows_are_compared_beyond_the_first_length(
    fn: Callable[[Tensor], Tensor], first: tuple[int, ...]
) -> None:
    buckets = {"x": Buckets(1, (4,), fill="repeat-last")}
    follow(lambda x: fn(x), lengths(*first, 3, 2, 4, 1), buckets=buckets)


def test_a_number_that_hides_at_length_one_is_compared_beyond_it() -> None:
    def ramp(x: Tensor) -> Tensor:
        return x * torch.linspace(0, 1, x.shape[1])[None, :, None]

    follow(ramp, lengths(1, 1, 3, 2), buckets={"x": Buckets(1, (4,))})


def test_a_count_that_two_rows_leave_alone_is_compared_with_one() -> None:
    def is_odd(x: Tensor) -> Tensor:
        return (x > 0).sum(1) % 2

    buckets = {"x": Buckets(1, (8,), fill="repeat-last")}
    runner = follow(is_odd, lengths(6, 4, 2, 5, 3), buckets=buckets)
    assert runner.report().reasons["padding-leaks"] > 0


def test_another_input_that_is_padded_is_compared() -> None:
    def joined(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], 1)

    rows = Buckets(1, (4, 8))
    pairs = [(4, 3), (4, 3), (4, 2), (4, 1), (2, 4), (1, 4)]
    calls = [(torch.randn(1, n), torch.randn(1, k)) for n, k in pairs]
    follow(joined, calls, buckets={"a": rows, "b": rows})


# What it costs.


def test_a_call_of_a_new_size_is_compared_and_later_ones_are_not() -> None:
    runner = graphed(lambda x: x * 2, admit_after=1, buckets={"x": Buckets(1, (8,))})
    told = []
    for (x,) in lengths(5, 5, 4, 3, 6, 7, 2, 8, 1, 1):
        torch.testing.assert_close(runner(x), x * 2)
        told.append(runner.report().compared)
    assert told == [0, 0, 1, 1, 1, 1, 1, 1, 2, 2]
    assert runner.report().replays == 9
    assert "2 of the replayed ran eagerly, too" in str(runner.report())
    assert runner.report().to_dict()["compared"] == 2


def test_calls_of_one_size_are_never_compared_again() -> None:
    runner = graphed(lambda x: x * 2, admit_after=1, buckets={"x": Buckets(1, (8,))})
    for given in lengths(5, 5, 8, 5):
        runner(*given)
    assert runner.report().compared == 0
    assert "ran eagerly, too" not in str(runner.report())


def test_every_shadow_counts_as_compared() -> None:
    runner = graphed(lambda x: x * 2, admit_after=1, verify_every=2)
    for given in lengths(5, 5, 5, 5, 5):
        runner(*given)
    assert (runner.report().replays, runner.report().compared) == (4, 2)


def test_new_weights_are_compared_at_every_size_once_more() -> None:
    module = nn.Linear(8, 8)
    runner = graphed(module, admit_after=1, buckets={"input": Buckets(1, (8,))})
    for given in lengths(5, 4, 5, 5, 4, 4):  # the later ones at a glance
        runner(*given)
    assert runner.report().compared == 1
    runner.update_weights({name: value * 2 for name, value in module.state_dict().items()})
    told = []
    for given in lengths(5, 5, 4, 3, 8):
        torch.testing.assert_close(runner(*given), module(*given))
        told.append(runner.report().compared)
    assert told == [2, 2, 3, 3, 3]


def test_a_recording_that_leaks_at_a_later_size_is_given_up() -> None:
    buckets = {"x": Buckets(1, (4,), fill="repeat-last")}
    runner = follow(lambda x: x.mean(1), lengths(1, 1, 3, 3), buckets=buckets)
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.PADDING_LEAKS)
    assert runner.report().graphs == ()
