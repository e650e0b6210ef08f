"""Observe: what a recording could not hold, with its reason, its call and the user's line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ostinato.graphs.observe import Refusal, observe
from ostinato.graphs.observe_draws import SEEDED, STATE_IS_ASKED
from ostinato.graphs.observe_rules import moved, verdict
from ostinato.graphs.reasons import Reason

CPU = torch.device("cpu")
X = torch.arange(6.0).view(2, 3)
REPEATS = torch.tensor([1, 2])


def refusals(step: Callable[[], object]) -> list[Refusal]:
    return observe(step, [X], device=CPU).refusals


@pytest.fixture(params=[torch.no_grad, torch.inference_mode], autouse=True)
def _without_gradients(request: pytest.FixtureRequest) -> object:
    with request.param():
        yield


@pytest.mark.parametrize(
    ("step", "op"),
    [
        (lambda: X.sum().item(), "aten._local_scalar_dense.default"),
        (lambda: 1 if X.sum() else 2, "aten._local_scalar_dense.default"),
        (lambda: int(X[0, 0]), "aten._local_scalar_dense.default"),
        (lambda: range(REPEATS[0]), "aten._local_scalar_dense.default"),
        (lambda: torch.equal(X, X), "aten.equal.default"),
        (lambda: torch.allclose(X, X), "aten.allclose.default"),
        (lambda: X.tolist(), "Tensor.tolist"),
        (lambda: X.numpy(), "Tensor.numpy"),
        (lambda: numpy.asarray(X), "Tensor.__array__"),
        (lambda: repr(X), "Tensor.__repr__"),
        (lambda: f"{X}", "Tensor.__format__"),
        (lambda: X.cpu(), "Tensor.cpu"),
        (lambda: X.to("cpu"), "Tensor.to"),
        (lambda: X.to(device="cpu:0"), "Tensor.to"),
        (lambda: torch.from_dlpack(X), "Tensor.__dlpack__"),
        (lambda: torch.utils.dlpack.to_dlpack(X), "torch.utils.dlpack.to_dlpack"),
        (lambda: X.data_ptr(), "Tensor.data_ptr"),
        (lambda: X.untyped_storage(), "Tensor.untyped_storage"),
        (lambda: torch.cpu.synchronize(), "torch.cpu.synchronize"),
    ],
)
def test_reads_by_the_host_are_host_syncs(step: Callable[[], object], op: str) -> None:
    first = refusals(step)[0]
    assert (first.reason, first.op) == (Reason.HOST_SYNC, op)
    assert first.where is not None
    assert first.where.startswith("test_observe_refusals.py:")


@pytest.mark.parametrize(
    ("step", "op"),
    [
        (lambda: X[X > 0], "aten.index.Tensor"),
        (lambda: X.nonzero(), "aten.nonzero.default"),
        (lambda: torch.where(X > 0), "aten.nonzero.default"),
        (lambda: X.unique(), "aten._unique2.default"),
        (lambda: X.masked_select(X > 0), "aten.masked_select.default"),
        (lambda: torch.bincount(REPEATS), "aten.bincount.default"),
        (lambda: torch.repeat_interleave(X, REPEATS, 0), "aten.repeat_interleave.Tensor"),
    ],
)
def test_shapes_that_depend_on_values_are_refused(step: Callable[[], object], op: str) -> None:
    first = refusals(step)[0]
    assert (first.reason, first.op) == (Reason.DATA_DEPENDENT_SHAPE, op)


def _set_masked() -> Tensor:
    y = X.clone()
    y[y > 0] = 0.0
    return y


@pytest.mark.parametrize(
    "step",
    [
        lambda: (X.shape, len(X), X.stride(), X.dtype, X.is_contiguous(), X.dim(), X.numel()),
        lambda: X.to(X.device),
        lambda: X[REPEATS - 1],
        _set_masked,
        lambda: torch.nonzero_static(X, size=2),
        lambda: torch.repeat_interleave(X, REPEATS, 0, output_size=3),
        lambda: torch.where(X > 0, X, 0.0),
        lambda: X + torch.tensor(5.0),
        lambda: X.clone().unsqueeze_(0),
    ],
)
def test_metadata_and_fixed_shapes_are_not_refused(step: Callable[[], object]) -> None:
    assert not refusals(step)


@pytest.mark.parametrize(
    "step",
    [
        lambda: X.to_sparse(),
        lambda: torch.empty(2).resize_(3),
        lambda: torch.empty(2).set_(X.clone()),
        lambda: copy.deepcopy(X),
    ],
)
def test_memory_without_a_fixed_place_is_refused(step: Callable[[], object]) -> None:
    assert refusals(step)[0].reason is Reason.CAPTURE_ERROR


def test_an_input_whose_shape_changes_in_place_is_a_side_effect() -> None:
    x = torch.ones(2, 3)
    found = observe(lambda: x.t_(), [x], device=CPU).refusals
    assert found[0].reason is Reason.PYTHON_SIDE_EFFECT


def test_the_users_line_is_named_and_the_first_refusal_comes_first() -> None:
    def step() -> object:
        total = X.sum().item()
        return X[total < X]

    found = refusals(step)
    assert [r.reason for r in found] == [Reason.HOST_SYNC, Reason.DATA_DEPENDENT_SHAPE]
    assert found[0].where is not None
    assert found[0].where.endswith("`total = X.sum().item()`")


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("cuda:0", "cpu", Reason.HOST_SYNC),
        ("cpu", "cuda:0", Reason.HOST_COPY),
        ("cuda:0", "cuda:1", Reason.SEVERAL_DEVICES),
    ],
)
def test_copies_between_devices_have_their_reason(source: str, target: str, reason: Reason) -> None:
    found = moved(torch.device(source), torch.device(target))
    assert found is not None
    assert found[0] is reason


@pytest.mark.parametrize(("source", "target"), [("cpu", "cpu"), ("cpu", "meta"), ("meta", "cpu")])
def test_copies_that_move_nothing_are_fine(source: str, target: str) -> None:
    assert moved(torch.device(source), torch.device(target)) is None


def test_reads_of_host_tensors_beside_a_gpu_step_are_python_values() -> None:
    seen = observe(lambda: X.sum().item(), [], device=torch.device("meta"))
    assert not seen.refusals


# One call on two devices, judged without any.


@dataclass(frozen=True)
class On:
    """A tensor to be: a fake one of another device wakes that device, where there is any."""

    device: torch.device
    shape: tuple[int, ...]

    def fake(self) -> Tensor:
        is_missing = (self.device.index or 0) >= torch.cuda.device_count() > 0
        if self.device.type == "cuda" and is_missing:
            pytest.skip(f"needs {self.device}, or no GPU at all")
        with FakeTensorMode() as fakes:
            return FakeTensor(fakes, torch.empty(self.shape, device="meta"), self.device)


def on(device: str, *shape: int) -> On:
    return On(torch.device(device), shape)


ATTENTION = torch.ops.aten._scaled_dot_product_efficient_attention.default
ADD = torch.ops.aten.add.Tensor
COPY = torch.ops.aten.copy_.default


@pytest.mark.parametrize(
    ("func", "read", "written", "reason"),
    [
        # The seed and offset of its dropout come as numbers on the host.
        (ATTENTION, [on("cuda:0", 2, 8)], [on("cuda:0", 2, 8), on("cpu"), on("cpu")], None),
        (ATTENTION, [on("cuda:0", 2, 8)], [on("cuda:0", 2, 8), on("cpu", 2)], None),
        (ATTENTION, [on("cuda:0", 2, 8)], [on("cuda:0", 2, 8), on("cpu", 3)], Reason.HOST_SYNC),
        (ADD, [on("cuda:0", 2), on("cpu")], [on("cuda:0", 2)], None),
        (ADD, [on("cuda:0", 2), on("cpu", 2)], [on("cuda:0", 2)], Reason.HOST_COPY),
        (ADD, [on("cuda:0", 2), on("cuda:1", 2)], [on("cuda:0", 2)], Reason.SEVERAL_DEVICES),
        (COPY, [on("cuda:0")], [on("cpu")], Reason.HOST_SYNC),
        (COPY, [on("cpu")], [on("cuda:0")], Reason.HOST_COPY),
    ],
)
def test_numbers_beside_a_kernel_may_lie_on_the_host(
    func: OpOverload, read: list[On], written: list[On], reason: Reason | None
) -> None:
    given = [each.fake() for each in read], [each.fake() for each in written]
    found = verdict(func, (), {}, *given)
    assert (found and found[0]) is reason


@pytest.mark.gpu
def test_attention_in_single_precision_is_no_read_by_the_host() -> None:
    q = torch.randn(2, 4, 16, 32, device="cuda")
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        seen = observe(
            lambda: scaled_dot_product_attention(q, q, q), [q], device=torch.device("cuda")
        )
    assert seen.refusals == []


# Seeding.


OTHER_STATE = torch.Generator().manual_seed(4).get_state()


@pytest.mark.parametrize("between", [lambda: None, lambda: torch.rand(1)])
@pytest.mark.parametrize(
    ("seed", "told"),
    [
        (lambda own: torch.manual_seed(3), SEEDED),
        (lambda own: torch.default_generator.manual_seed(3), SEEDED),
        (lambda own: torch.seed(), SEEDED),
        (lambda own: own.manual_seed(3), SEEDED),
        (lambda own: own.set_state(OTHER_STATE), STATE_IS_ASKED),
    ],
)
def test_a_step_that_seeds_is_refused(
    seed: Callable[[torch.Generator], object], told: str, between: Callable[[], object]
) -> None:
    own = torch.Generator().manual_seed(3)
    torch.manual_seed(3)  # the same as in the step: no state would tell

    def step() -> Tensor:
        seed(own)
        between()
        return X * 2

    seen = observe(step, [X], device=CPU, generators=[own])
    assert [(each.reason, each.detail) for each in seen.refusals] == [
        (Reason.PYTHON_SIDE_EFFECT, told)
    ]


def test_a_seed_for_a_part_of_the_step_is_refused_at_the_line_that_begins_it() -> None:
    def step() -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            noise = torch.rand(3)
        return X + noise

    (refusal,) = refusals(step)
    assert refusal.reason is Reason.PYTHON_SIDE_EFFECT
    assert refusal.where is not None
    assert "torch.random.fork_rng" in refusal.where
