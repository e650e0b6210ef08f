"""Buckets: sizes are rounded up, padding never shows, and what comes back has the real size."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from graphs.replaying import check_eager, check_replay, record, spoil
from ostinato import Buckets, graphed
from ostinato.errors import UsageError
from ostinato.graphs import Outcome, Reason
from ostinato.graphs.decision import OstinatoWarning


def values(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


def rows(*sizes: int, **options: Any) -> Buckets:
    return Buckets(dim=0, sizes=sizes, **options)


def test_all_sizes_of_a_bucket_share_one_recording(device: torch.device) -> None:
    g = record(lambda x: x * 2, values(device, 3, 2), buckets={"x": rows(4, 8)})
    for n in (1, 4, 2, 3, 4, 1):
        assert check_replay(g, values(device, n, 2)).shape == (n, 2)
    assert g.report().to_dict()["recordings"] == 1


def test_a_small_call_after_a_large_one_sees_no_stale_rows(device: torch.device) -> None:
    # The sum reads the padding, which the policy keeps at zero.
    g = record(lambda x: x.sum(0), values(device, 3, 2), buckets={"x": rows(8)})
    for n in (8, 3, 7, 1, 8, 2):
        check_replay(g, values(device, n, 2))


def test_padded_indices_stay_valid_for_a_gather(device: torch.device) -> None:
    table = values(device, 5, 3)
    g = record(lambda i: table[i], torch.tensor([4, 4, 4], device=device), buckets={"i": rows(8)})
    for n in (8, 2, 5, 1):
        check_replay(g, torch.randint(0, 5, (n,), device=device))


@pytest.mark.parametrize("fill", [0, 1, -2.5, "zero", "repeat-last"])
def test_the_declared_fill_is_what_the_function_reads(fill: Any, device: torch.device) -> None:
    g = record(lambda x: x + 1, values(device, 6), buckets={"x": rows(6, fill=fill)})
    (graph,) = g._store.graphs()
    for n in (6, 2, 4, 1, 5):
        x = values(device, n)
        spoil(g)
        assert torch.equal(g(x), x + 1)
        assert g.last.outcome is Outcome.REPLAYED
        wanted = {"zero": 0.0, "repeat-last": float(x[-1])}.get(fill, fill)
        assert graph.inputs.tensors[0][n:].tolist() == pytest.approx([wanted] * (6 - n))


def test_keep_leaves_the_padding_alone_and_a_masked_function_does_not_care(
    device: torch.device,
) -> None:
    def step(x: Tensor, n: Tensor) -> Tensor:
        real = torch.arange(x.shape[0], device=x.device) < n
        return torch.where(real, x, 0).sum()

    def call(n: int) -> tuple[Tensor, Tensor]:
        return values(device, n), torch.tensor(n, device=device)

    g = record(step, *call(3), buckets={"x": rows(8, fill="keep")})
    for n in (8, 1, 5):
        check_replay(g, *call(n))


def test_a_mean_over_padded_rows_is_found_out_and_answered_rightly(device: torch.device) -> None:
    g = graphed(lambda x: x.mean(0), admit_after=1, buckets={"x": rows(8)})
    for n in (3, 3, 8, 5):
        x = values(device, n, 2)
        torch.testing.assert_close(g(x), x.mean(0))
    assert g.report().to_dict()["reasons"]["padding-leaks"] >= 1


def test_a_leak_is_found_when_the_first_call_fills_its_bucket(device: torch.device) -> None:
    g = graphed(lambda x: x.softmax(0), admit_after=1, buckets={"x": rows(4)})
    x = values(device, 4)
    torch.testing.assert_close(g(x), x.softmax(0))
    for n in (2, 3, 1):
        x = values(device, n)
        torch.testing.assert_close(g(x), x.softmax(0))
    assert g.report().to_dict()["reasons"]["padding-leaks"] >= 1


def centre_(x: Tensor) -> Tensor:
    return x.sub_(x.mean(1, keepdim=True))


def centre_one_of_several_(given: dict[str, Tensor]) -> None:
    given["x"].sub_(given["x"].mean(1, keepdim=True))


def centre_into(x: Tensor, out: Tensor) -> None:
    out.copy_(x - x.mean(1, keepdim=True))


def take_the_last_out_(x: Tensor) -> None:
    x[:, -1] = 0.0


def add_up_in(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x.sum())
    return x * 2


_OF_DICT = {"given.x": Buckets(dim=1, sizes=(8,))}
_OF_X = {"x": Buckets(dim=1, sizes=(8,))}
_OF_BOTH = _OF_X | {"out": Buckets(dim=1, sizes=(8,))}
_REPEATED = {"x": Buckets(dim=1, sizes=(8,), fill="repeat-last")}


@pytest.mark.parametrize("first", [5, 8])
@pytest.mark.parametrize(
    ("fn", "buckets", "args"),
    [
        (centre_, _OF_X, lambda x: (x,)),
        (centre_one_of_several_, _OF_DICT, lambda x: ({"x": x},)),
        (centre_into, _OF_BOTH, lambda x: (x, x * 0)),
        (take_the_last_out_, _OF_X, lambda x: (x,)),
        (add_up_in, _REPEATED, lambda x: (x, x.new_zeros(1))),
    ],
)
def test_a_leak_into_an_argument_is_found_whatever_the_size_that_is_recorded(
    fn: Any, buckets: dict[str, Buckets], args: Any, first: int, device: torch.device
) -> None:
    g = graphed(fn, buckets=buckets, admit_after=1)
    for n in (first, 7, 6):
        given, expected = (args(torch.arange(1.0, n + 1, device=device)[None]) for _ in range(2))
        answer, right = g(*given), fn(*expected)
        torch.testing.assert_close(given, expected)
        torch.testing.assert_close(answer, right)
    assert g.last is not None
    assert g.last.reason is Reason.PADDING_LEAKS


def test_two_arguments_vary_together(device: torch.device) -> None:
    buckets = {"x": rows(4, 8), "mask": rows(4, 8, fill=False)}

    def call(n: int) -> tuple[Tensor, Tensor]:
        return values(device, n, 2), torch.rand(n, device=device) < 0.5

    g = record(lambda x, mask: x * mask[:, None], *call(3), buckets=buckets)
    for n in (4, 1, 2):
        check_replay(g, *call(n))


def test_two_axes_vary_apart(device: torch.device) -> None:
    buckets = {"a": Buckets(dim=0, sizes=(4, 8)), "b": Buckets(dim=-1, sizes=(3, 6))}
    g = graphed(lambda a, b: {"ab": a @ b, "t": (a @ b).t()}, admit_after=1, buckets=buckets)
    for n, m in ((3, 2), (3, 5), (7, 2), (7, 5)):
        g(values(device, n, 5), values(device, 5, m))
    for n, m in ((4, 3), (2, 6), (8, 2), (5, 4), (3, 3), (6, 6), (2, 2)):
        check_replay(g, values(device, n, 5), values(device, 5, m))
    assert g.report().to_dict()["recordings"] <= 6


def test_a_hidden_size_that_equals_the_bucket_survives(device: torch.device) -> None:
    layer = nn.Linear(64, 64).to(device).requires_grad_(False)
    g = record(lambda x: (layer(x), layer.weight + 0), values(device, 5, 64),
               buckets={"x": rows(64)})  # fmt: skip
    out, weight = check_replay(g, values(device, 9, 64))
    assert out.shape == (9, 64)
    assert weight.shape == (64, 64)


def test_a_declared_cut_is_followed(device: torch.device) -> None:
    buckets = Buckets(dim=0, sizes=(8,), cut={"y.out": 1})
    g = record(lambda x: {"y": {"out": x.t() + 1, "all": x.sum(0)}}, values(device, 3, 2),
               buckets={"x": buckets})  # fmt: skip
    check_replay(g, values(device, 5, 2))


def test_a_cut_that_names_no_output_is_refused_with_the_names_that_exist(
    device: torch.device,
) -> None:
    buckets = Buckets(dim=0, sizes=(8,), cut={"nope": 0})
    g = graphed(lambda x: {"y": x + 1}, admit_after=1, buckets={"x": buckets})
    x = values(device, 3)
    assert torch.equal(g(x)["y"], x + 1)
    assert g.last.reason is Reason.OUTPUT_SIZE_UNKNOWN
    assert "nope" in g.last.detail
    assert "y" in g.last.detail


def test_cuts_declared_by_two_axes_are_followed_each_by_its_own(device: torch.device) -> None:
    buckets = {
        "a": Buckets(dim=0, sizes=(4, 8), cut={"": 0}),
        "b": Buckets(dim=1, sizes=(3, 6), cut={"": 1}),
    }
    g = record(lambda a, b: a @ b, values(device, 3, 5), values(device, 5, 2), buckets=buckets)
    for n, m in ((4, 3), (1, 2), (2, 1)):
        check_replay(g, values(device, n, 5), values(device, 5, m))


def test_what_one_axis_declares_leaves_the_others_to_be_found_out(device: torch.device) -> None:
    buckets = {
        "a": Buckets(dim=0, sizes=(4, 8), cut={}),
        "b": Buckets(dim=1, sizes=(3, 6)),
    }
    g = record(
        lambda a, b: (a.sum(0), b * 2), values(device, 3, 4), values(device, 4, 5), buckets=buckets
    )
    summed, cut = check_replay(g, values(device, 2, 4), values(device, 4, 4))
    assert (summed.shape, cut.shape) == ((4,), (4, 4))


def test_attention_with_a_mask_is_right_at_every_length(device: torch.device) -> None:
    project = nn.Linear(8, 24).to(device).requires_grad_(False)

    def step(x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = project(x)[:, None].chunk(3, dim=-1)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])[:, 0]

    def call(n: int) -> tuple[Tensor, Tensor]:
        return values(device, 2, n, 8), torch.ones(2, n, dtype=torch.bool, device=device)

    length = Buckets(dim=1, sizes=(8, 16), fill=0)
    g = record(step, *call(5), buckets={"x": length, "mask": length})
    g(*call(12))
    for n in (8, 1, 16, 6, 9, 3):
        check_replay(g, *call(n))
    assert "padding-leaks" not in g.report().to_dict()["reasons"]


def test_attention_without_a_mask_is_found_out(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x)

    g = graphed(step, admit_after=1, buckets={"x": Buckets(dim=1, sizes=(8,))})
    for n in (5, 8, 3):
        x = values(device, 2, n, 4)
        torch.testing.assert_close(g(x), step(x))
    assert g.report().to_dict()["reasons"]["padding-leaks"] >= 1


def test_a_bucketed_input_written_in_place_is_written_for_the_caller(
    device: torch.device,
) -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y[: x.shape[0], None])
        return x * 2

    both = rows(8)
    g = record(step, values(device, 3, 2), values(device, 3), buckets={"x": both, "y": both})
    for n in (8, 2, 5, 2):
        check_replay(g, values(device, n, 2), values(device, n))


def test_padding_that_a_run_wrote_is_filled_anew(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        total = x.sum(0)
        x.add_(1)  # the padding too
        return total

    g = record(step, values(device, 3, 2), buckets={"x": rows(8)})
    for n in (3, 3, 2, 8, 3):
        check_replay(g, values(device, n, 2))


LAYOUTS = {
    "transposed": lambda d, n: values(d, 3, n).t(),
    "expanded": lambda d, n: values(d, 1, 3).expand(n, 3),
    "every-other": lambda d, n: values(d, 2 * n, 3)[::2],
    "odd-offset": lambda d, n: values(d, 3 * n + 1)[1:].view(n, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_a_bucketed_input_does_not_matter(layout: str, device: torch.device) -> None:
    make = LAYOUTS[layout]
    g = record(lambda x: x + 1, values(device, 3, 3), buckets={"x": rows(8)})
    for n in (8, 2, 5):
        x = make(device, n)
        spoil(g)
        torch.testing.assert_close(g(x), x + 1)
        assert g.last.outcome is Outcome.REPLAYED


def test_a_bucketed_input_that_is_returned_is_the_callers_own(device: torch.device) -> None:
    g = record(lambda x: (x, x + 1), values(device, 3), buckets={"x": rows(8)})
    x = values(device, 5)
    assert check_replay(g, x)[0] is x


def test_nested_arguments_are_bucketed_by_their_path(device: torch.device) -> None:
    g = record(lambda batch: batch["ids"] + 1, {"ids": values(device, 3), "rest": None},
               buckets={"batch.ids": rows(8)})  # fmt: skip
    for n in (8, 2):
        check_replay(g, {"ids": values(device, n), "rest": None})
    h = record(lambda x, scale: x * scale, values(device, 3), 2.0, buckets={"x": rows(8)})
    check_replay(h, values(device, 5), 2.0)
    g_kw = graphed(lambda *, x: x + 1, admit_after=1, buckets={"x": rows(8)})
    g_kw(x=values(device, 3))
    check_replay(g_kw, x=values(device, 5))


def test_an_optional_bucketed_argument_may_be_none(device: torch.device) -> None:
    buckets = {"x": rows(8), "mask": rows(8)}

    def step(x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x * mask

    g = record(step, values(device, 3), None, buckets=buckets)
    check_replay(g, values(device, 5), None)


def test_a_size_beyond_every_bucket_runs_eagerly(device: torch.device) -> None:
    g = graphed(lambda x: x + 1, admit_after=1, buckets={"x": rows(4)})
    check_eager(g, Reason.OUTSIDE_BUCKETS, values(device, 5))
    assert "has 5 along dim 0, the largest bucket is 4" in g.last.detail
    strict = graphed(lambda x: x + 1, buckets={"x": rows(4)}, on_unfit="raise")
    with pytest.raises(UsageError, match="outside-buckets"):
        strict(values(device, 5))


def test_an_empty_batch_runs_eagerly_and_a_largest_size_of_one_works(
    device: torch.device,
) -> None:
    g = graphed(lambda x: x + 1, admit_after=1, buckets={"x": rows(1)})
    check_eager(g, Reason.EMPTY_BATCH, values(device, 0, 2))
    g(values(device, 1, 2))
    check_replay(g, values(device, 1, 2))


def test_a_bucketed_tensor_without_that_dimension_is_an_error(device: torch.device) -> None:
    g = graphed(lambda x: x + 1, buckets={"x": Buckets(dim=1, sizes=(4,))})
    with pytest.raises(UsageError, match="on dim 1, but it has 1 dimensions"):
        g(values(device, 3))


def test_a_bucketed_tensor_that_shares_memory_runs_eagerly(device: torch.device) -> None:
    g = graphed(lambda x, y: x + y, admit_after=1, buckets={"x": rows(8)})
    x = values(device, 3)
    check_eager(g, Reason.UNSUPPORTED_INPUT, x, x)


def test_learnt_buckets_serve_the_traffic_they_were_learnt_from(device: torch.device) -> None:
    trace = [1, 1, 2, 7, 7, 7, 30, 31, 32, 32]
    learnt = Buckets.learn(trace, max_graphs=3)
    g = graphed(lambda x: x * 2, admit_after=1, buckets={"x": learnt})
    for size in learnt.sizes:
        g(values(device, size))
    for size in trace:
        check_replay(g, values(device, size))
    assert g.report().to_dict()["recordings"] <= 3


def test_a_training_module_with_buckets_keeps_its_statistics_or_is_refused(
    device: torch.device,
) -> None:
    # Batch statistics read the padding: never a replay with other numbers.
    norm = nn.BatchNorm1d(2).to(device).requires_grad_(False)
    twin = nn.BatchNorm1d(2).to(device).requires_grad_(False)
    g = graphed(norm, admit_after=1, buckets={"input": rows(8)})
    for n in (3, 5, 8, 3):
        x = values(device, n, 2)
        torch.testing.assert_close(g(x), twin(x))
    torch.testing.assert_close(norm.running_mean, twin.running_mean)


def test_shadow_replays_pass_on_a_masked_function(device: torch.device) -> None:
    g = record(lambda x: x * 2, values(device, 3), buckets={"x": rows(8)}, verify_every=2)
    for n in (5, 2, 8, 1, 3):
        check_replay(g, values(device, n))


def runs_of(step: Any, buckets: Any, calls: list[Tensor]) -> list[int]:
    """Record at each call; return how often each made the function run."""
    runs: list[int] = []
    # Out of sight of the search for side effects.
    tick = map(runs.append, itertools.count(1)).__next__

    def counted(x: Tensor) -> Any:
        tick()
        return step(x)

    g = graphed(counted, admit_after=1, buckets=buckets)
    made = []
    for call in calls:
        before = len(runs)
        g(call)
        assert g.last is not None
        assert g.last.outcome is Outcome.RECORDED, g.last
        made.append(len(runs) - before)
    return made


def test_how_outputs_follow_the_sizes_is_found_once_for_all_buckets(device: torch.device) -> None:
    calls = [values(device, n, 4) for n in (3, 6, 12, 24, 48)]
    with_buckets = runs_of(lambda x: x * 2, {"x": rows(4, 8, 16, 32, 64)}, calls)
    exact = runs_of(lambda x: x * 2, None, calls)
    # Once for the bucket that serves a size of 1 as well, once for all the others.
    assert with_buckets[0] > exact[0]
    assert with_buckets[1] > exact[1]
    # Each is compared with eager on two other sets of values, too.
    assert with_buckets[2:] == [runs + 2 for runs in exact[2:]]


def test_calls_whose_sizes_are_equal_elsewhere_follow_another_rule(device: torch.device) -> None:
    buckets = {name: rows(4, 8, 16) for name in "xyz"}
    g = graphed(lambda x, y, z: (x.sum(1), y.sum(1), z.sum(1)), admit_after=1, buckets=buckets)
    for sizes in ((5, 5, 6), (5, 6, 6), (6, 5, 6), (9, 9, 10), (9, 10, 10), (7, 7, 7), (5, 6, 7)):
        given = [values(device, n, 4) for n in sizes]
        g(*given)
        assert tuple(len(out) for out in check_replay(g, *given)) == sizes


def test_a_rule_is_found_anew_once_what_it_rests_on_has_changed(device: torch.device) -> None:
    class Pooling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = False

        def forward(self, x: Tensor) -> Tensor:
            return x[:2] if self.pool else x * 2

    module = Pooling()
    g = graphed(module, admit_after=1, buckets={"x": rows(4, 8, 16, 32)})
    for n in (5, 9):
        check_replay_after_recording(g, values(device, n, 4), n)
    module.pool = True
    with pytest.warns(OstinatoWarning, match="pool changed"):
        g(values(device, 5, 4))
    for n in (7, 12):
        check_replay_after_recording(g, values(device, n, 4), 2)


def check_replay_after_recording(g: Any, x: Tensor, length: int) -> None:
    assert g(x).shape[0] == length
    assert check_replay(g, x).shape[0] == length


# A size of 1, and sizes that follow no straight line.


@pytest.mark.parametrize("first", [1, 3])
def test_a_function_that_is_another_at_size_1_serves_the_other_sizes(
    first: int, device: torch.device
) -> None:
    g = graphed(lambda x: (x * 2).squeeze(), admit_after=1, buckets={"x": rows(4)})
    for n in (first, 3, 3, 3, 3, 3):
        g(values(device, n, 2))
    for _ in range(2):
        for n in (2, 4, 3):
            check_replay(g, values(device, n, 2))
        check_eager(g, Reason.OUTPUT_SIZE_UNKNOWN, values(device, 1, 2))


def test_size_1_is_another_in_a_smaller_bucket_too(device: torch.device) -> None:
    g = record(lambda x: (x * 2).squeeze(), values(device, 7, 2), buckets={"x": rows(4, 8)})
    g(values(device, 3, 2))
    for n in (2, 6, 3):
        check_replay(g, values(device, n, 2))
    check_eager(g, Reason.OUTPUT_SIZE_UNKNOWN, values(device, 1, 2))


def test_two_axes_may_each_be_1(device: torch.device) -> None:
    g = graphed(
        lambda x, y: (x.squeeze() * 2, y + 1),
        admit_after=1,
        buckets={"x": rows(4), "y": rows(6)},
    )
    g(values(device, 3, 2), values(device, 5, 2))
    check_replay(g, values(device, 2, 2), values(device, 4, 2))
    check_eager(g, Reason.OUTPUT_SIZE_UNKNOWN, values(device, 1, 2), values(device, 4, 2))


def test_what_cannot_run_on_fakes_is_not_trusted_at_size_1(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        if type(x) is not Tensor:
            raise RuntimeError("real tensors only")
        return (x * 2).squeeze()

    g = record(step, values(device, 3, 2), buckets={"x": rows(4)})
    check_replay(g, values(device, 2, 2))
    check_eager(g, Reason.OUTPUT_SIZE_UNKNOWN, values(device, 1, 2))


def test_a_size_that_fake_runs_showed_to_be_bent_is_refused_at_once(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        return x[: x.shape[0] // 2 + 1] * 2

    # At 6 and at 16, the two sizes that would run for real, the rule looks straight.
    g = graphed(step, admit_after=1, buckets={"x": rows(16)})
    for n in (6, 5, 7, 8):
        check_eager(g, Reason.OUTPUT_SIZE_UNKNOWN, values(device, n, 2))


STRIDES = {
    "transposed": lambda n: torch.randn(4, n).t(),
    "every second column": lambda n: torch.randn(n, 8)[:, ::2],
    "windows": lambda n: torch.randn(n + 3).unfold(0, 4, 1),
    "expanded": lambda n: torch.randn(n, 1).expand(n, 4),
}


@pytest.mark.parametrize("layout", STRIDES)
def test_a_bucketed_tensor_of_another_layout_is_answered_as_its_contiguous_copy(
    layout: str, device: torch.device
) -> None:
    def given(n: int) -> Tensor:
        return STRIDES[layout](n).to(device)

    def step(x: Tensor) -> Tensor:
        return x * 2

    g = graphed(step, admit_after=1, buckets={"x": rows(8)})
    for n in (5, 3, 6):  # compared with eager runs, which answer these calls
        x = given(n)
        assert torch.equal(g(x), step(x))
    for n in (5, 8, 3, 6):
        x = given(n)
        y = g(x)
        assert torch.equal(y, step(x))
        assert y.stride() == step(x.contiguous()).stride()
    assert g.report().replays == 6
    assert g.report().compared == 2
