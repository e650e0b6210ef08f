"""Inputs: whatever a call is given, a replay computes with it and not with what was recorded."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from contextlib import nullcontext as nothing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_eager, check_replay, record
from ostinato import graphed
from ostinato.graphs import OstinatoWarning, Outcome, Reason

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - the untyped kind must work too


@dataclass
class Batch:
    ids: Tensor
    mask: Tensor | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Frozen:
    ids: Tensor
    inner: Any = None


@dataclass
class Counted:
    ids: Tensor
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.made += 1
        self.total = self.ids.sum()  # not a field


def values(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


# Structures.


def of_dict(d: Any) -> Tensor:
    return d["x"] * d["y"]["z"]


def of_items(d: Any) -> Tensor:
    return d[0] - d[1]


STRUCTURES = {
    "dict": (of_dict, lambda x, y: {"x": x, "y": {"z": y}}),
    "ordered-dict": (of_dict, lambda x, y: OrderedDict(x=x, y={"z": y})),
    "default-dict": (lambda d: d["x"] - d["y"], lambda x, y: defaultdict(int, x=x, y=y)),
    "list": (of_items, lambda x, y: [x, y]),
    "tuple": (of_items, lambda x, y: (x, y)),
    "namedtuple": (lambda p: p.left - p.right, lambda x, y: Pair(x, y)),
    "dataclass": (lambda b: b.ids * b.scale - b.mask, lambda x, y: Batch(x, y, 2.0)),
    "dataclass-none": (
        lambda b: (b.ids if b.mask is None else b.mask) * 2, lambda x, y: Batch(x),
    ),
    "frozen": (lambda b: b.ids - b.inner["k"], lambda x, y: Frozen(x, {"k": y})),
    "post-init": (lambda b: b.ids * b.made + b.total, lambda x, y: Counted(x)),
    "micro-batches": (
        lambda ms: sum(args[0] * kw.get("w", 1) for args, kw in ms),
        lambda x, y: [((x,), {"w": y, "none": None}), ((y,), {})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", STRUCTURES)
def test_every_tensor_of_a_nested_argument_is_refreshed_on_every_call(
    kind: str, device: torch.device
) -> None:
    fn, make = STRUCTURES[kind]
    g = record(fn, make(values(device, 3), values(device, 3)))
    for _ in range(3):
        check_replay(g, make(values(device, 3), values(device, 3)))


def test_a_model_output_with_fields_that_are_none_is_taken_and_given(device: torch.device) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def step(given: Any) -> Any:
        return outputs.BaseModelOutputWithPooling(
            last_hidden_state=given.last_hidden_state * 2, hidden_states=(given[0], given[0] + 1)
        )

    def make() -> Any:
        return outputs.BaseModelOutputWithPooling(last_hidden_state=values(device, 2, 3))

    g = record(step, make())
    result = check_replay(g, make())
    assert type(result) is outputs.BaseModelOutputWithPooling
    assert result.pooler_output is None
    assert list(result) == ["last_hidden_state", "hidden_states"]
    assert result[0] is result.last_hidden_state


def test_lists_of_another_length_are_another_signature(device: torch.device) -> None:
    g = record(lambda xs: sum(xs), [values(device, 2), values(device, 2)])
    check_eager_or_recorded(g, [values(device, 2)])
    check_replay(g, [values(device, 2)])
    check_replay(g, [values(device, 2), values(device, 2)])


def check_eager_or_recorded(g: Any, *args: Any, **kwargs: Any) -> Any:
    result = g(*args, **kwargs)
    assert g.last.outcome is not Outcome.REPLAYED, g.last
    return result


# Python values.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, True), (1, 1.0), (True, 1.0), (0.0, -0.0), (1.0, float("nan")), (2, 3), (None, 0),
        ("add", "sub"), (np.float32(1), np.float64(1)), (np.int64(1), 1), (1j, complex(-0.0, 1)),
        (slice(0, 1), slice(0, 2)), (frozenset({1}), frozenset({True})),
        (torch.float32, torch.float64), ((1, 2), (1, True)), (range(2), range(3)),
    ],
    ids=repr,
)  # fmt: skip
def test_python_values_that_differ_in_type_or_bits_are_different_signatures(
    first: object, second: object, device: torch.device
) -> None:
    def step(x: Tensor, value: object) -> tuple[Tensor, object]:
        return x + float(len(repr(value))), value

    x = values(device, 2)
    g = record(step, x, first)
    assert repr(check_eager_or_recorded(g, x, second)[1]) == repr(second)
    for value in (first, second, first):
        given = check_replay(g, x, value)[1]
        assert (type(given), repr(given)) == (type(value), repr(value))


def test_the_sign_of_a_zero_reaches_the_result(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    g = record(lambda x, zero: x / zero, x, 0.0)
    assert float(check_eager_or_recorded(g, x, -0.0)[0]) == -float("inf")
    assert float(check_replay(g, x, -0.0)[0]) == -float("inf")
    assert float(check_replay(g, x, 0.0)[0]) == float("inf")


@pytest.mark.parametrize(
    "value",
    [float("nan"), np.float32("nan"), complex("nan+1j"), -0.0, slice(None, 2), "text", torch.half],
    ids=repr,
)
def test_equal_python_values_share_a_recording(value: Any, device: torch.device) -> None:
    import copy

    x = values(device, 2)
    g = record(lambda x, value: x * 2, x, value)
    check_replay(g, x, copy.copy(value))


# Layouts.

LAYOUTS = {
    "transposed": lambda d: values(d, 4, 3).t(),
    "expanded": lambda d: values(d, 1, 3).expand(4, 3),
    "expanded-inside": lambda d: values(d, 4, 1, 3).expand(4, 5, 3),
    "expanded-scalar": lambda d: values(d).expand(4, 3),
    "odd-offset": lambda d: values(d, 13)[1:].view(4, 3),
    "columns": lambda d: values(d, 4, 8)[:, 2:5],
    "every-other": lambda d: values(d, 8, 3)[::2],
    "channels-last": lambda d: values(d, 2, 3, 4, 5).to(memory_format=torch.channels_last),
    "overlapping-windows": lambda d: values(d, 9).unfold(0, 3, 2),
    "zero-dim": lambda d: values(d),
    "flipped": lambda d: values(d, 4, 3).flip(0).permute(1, 0),
    "bool": lambda d: values(d, 4) > 0,
    "int": lambda d: torch.randint(0, 9, (4, 3), device=d).t(),
    "half": lambda d: values(d, 4, 3).half(),
    "complex": lambda d: torch.complex(values(d, 3), values(d, 3)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_gives_the_result_and_strides_that_eager_gives(
    layout: str, device: torch.device
) -> None:
    make = LAYOUTS[layout]

    def step(x: Tensor) -> tuple[Tensor, ...]:
        return x + x, x.reshape(-1).clone(), x.t() if x.dim() == 2 else x, x

    g = record(step, make(device))
    for _ in range(2):
        x = make(device)
        result = check_replay(g, x)
        assert result[3] is x


def test_strides_are_part_of_the_key(device: torch.device) -> None:
    def step(x: Tensor) -> Tensor:
        return x.as_strided((12,), (1,)) * 2  # reads memory order

    g = record(step, values(device, 3, 4))
    check_eager_or_recorded(g, values(device, 4, 3).t())
    check_replay(g, values(device, 4, 3).t())
    check_replay(g, values(device, 3, 4))


def test_an_offset_into_a_storage_is_not_part_of_the_key(device: torch.device) -> None:
    g = record(lambda x: x * 3, values(device, 4))
    for start in range(4):
        check_replay(g, values(device, 9)[start : start + 4])


def test_sizes_of_zero_run_eagerly_and_are_right(device: torch.device) -> None:
    g = graphed(lambda x: x.sum(0), admit_after=1)
    for _ in range(3):
        check_eager(g, Reason.EMPTY_BATCH, values(device, 0, 3))
    g(values(device, 1, 3))
    check_replay(g, values(device, 1, 3))


def test_a_parameter_given_as_an_argument_is_refreshed(device: torch.device) -> None:
    def step(w: Tensor, x: Tensor) -> Tensor:
        return x @ w

    with torch.no_grad():
        g = record(step, nn.Parameter(values(device, 3, 3)), values(device, 3))
        check_replay(g, nn.Parameter(values(device, 3, 3)), values(device, 3))
        w = nn.Parameter(values(device, 3, 3))
        assert g(w, values(device, 3)).requires_grad is False


# Shared memory.


def test_the_same_tensor_twice_is_the_same_tensor_inside(device: torch.device) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return a * b

    x = values(device, 4)
    g = record(step, x, x)
    y = values(device, 4)
    check_replay(g, y, y)
    # Two tensors of their own are another situation.
    check_eager_or_recorded(g, values(device, 4), values(device, 4))
    check_replay(g, values(device, 4), values(device, 4))
    check_replay(g, y, y)


def test_whether_two_arguments_are_one_object_is_part_of_the_key(device: torch.device) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        return a * 2 if a is b else a * 3

    x = values(device, 4)
    g = record(step, x, x)
    check_eager_or_recorded(g, x, x[:])
    check_replay(g, x, x)
    check_replay(g, x, x[:])


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_overlapping_views_are_written_and_read_through_one_memory(
    offset: int, device: torch.device
) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return b + 1

    def make(at: int = offset) -> tuple[Tensor, Tensor]:
        x = values(device, 12)
        return x[:6], x[at : at + 6]

    g = record(step, *make())
    check_replay(g, *make())
    check_eager_or_recorded(g, *make(offset + 1))
    check_replay(g, *make(offset + 1))
    check_replay(g, *make())


def test_overlapping_views_of_other_dtypes_stay_right(device: torch.device) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        a.neg_()
        return b.clone()

    def make() -> tuple[Tensor, Tensor]:
        x = values(device, 8)
        return x, x.view(torch.int32)[2:]

    g = record(step, *make())
    check_replay(g, *make())


def test_views_that_lie_between_each_other_without_sharing_stay_right(
    device: torch.device,
) -> None:
    def step(even: Tensor, odd: Tensor) -> Tensor:
        even.add_(10)
        return even - odd

    def make() -> tuple[Tensor, Tensor]:
        x = values(device, 12)
        return x[::2], x[1::2]

    g = record(step, *make())
    check_replay(g, *make())


def test_memory_shared_through_two_storages_is_refused() -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    array = np.arange(8, dtype=np.float32)
    a, b = torch.from_numpy(array[:6]), torch.from_numpy(array[2:])
    g = graphed(step, admit_after=1)
    for _ in range(2):
        before = array.copy()
        result = g(a, b)
        assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.UNSUPPORTED_INPUT)
        before[:6] += 1
        assert result.tolist() == (before[2:] * 2).tolist()


# Inputs that the function writes.

WRITES = {
    "itself": lambda x: x.add_(1),
    "a-view": lambda x: x[1:].mul_(2),
    "a-view-of-a-view": lambda x: x.view(-1)[2:].view(torch.int32).bitwise_not_(),
    "out": lambda x: torch.exp(x.clone(), out=x),
    "copy": lambda x: x.copy_(x.flip(0)),
    "index": lambda x: x.index_fill_(0, torch.zeros(1, dtype=torch.long, device=x.device), 5.0),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "inference"])
def test_inputs_written_in_place_are_written_for_the_caller(
    write: str, grad: bool, device: torch.device
) -> None:
    change = WRITES[write]

    def step(x: Tensor, y: Tensor) -> Tensor:
        change(x)
        return x * y

    with torch.inference_mode(not grad):
        g = record(step, values(device, 4, 3), values(device, 4, 3))
        x = values(device, 4, 3)
        for _ in range(3):
            check_replay(g, x, values(device, 4, 3))


def test_a_column_written_in_place_leaves_its_neighbours_alone(device: torch.device) -> None:
    def step(column: Tensor) -> None:
        column.add_(1)

    g = record(step, values(device, 5, 4)[:, 1])
    table = values(device, 5, 4)
    expected = table.clone()
    expected[:, 1] += 1
    check_replay(g, table[:, 1])
    assert torch.equal(table, expected)


def test_an_argument_that_is_not_written_keeps_its_version(device: torch.device) -> None:
    def step(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        c.add_(1)
        return a + b

    x, c = values(device, 4), values(device, 4)
    g = record(step, x, x[:], c)
    version = x._version
    check_replay(g, x, x[:], c)
    assert x._version == version


def test_a_list_or_dict_that_the_function_changes_is_changed_for_the_caller(
    device: torch.device,
) -> None:
    def step(x: Tensor, seen: list[Tensor], options: dict[str, Tensor]) -> Tensor:
        seen.append(x + 1)
        options["y"] = x * 2
        return x * 3

    g = graphed(step, admit_after=2)
    for i in range(5):
        x, seen, options = values(device, 3), [values(device, 3)], {}  # type: ignore[var-annotated]
        with pytest.warns(OstinatoWarning, match="list given as 'seen'") if i == 1 else nothing():
            result = g(x, seen, options)
        assert torch.equal(result, x * 3)
        assert len(seen) == 2
        assert torch.equal(seen[1], x + 1)
        assert torch.equal(options["y"], x * 2)
    assert g.last.reason is Reason.PYTHON_SIDE_EFFECT


# What cannot be refreshed is refused.


class Tagged(Tensor):
    pass


def _fake() -> Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


UNFIT = {
    "subclass": lambda d: values(d, 3).as_subclass(Tagged),
    "sparse": lambda d: torch.eye(3, device=d).to_sparse(),
    "sparse-csr": lambda d: torch.eye(3, device=d).to_sparse_csr(),
    "numpy": lambda d: np.ones(3, dtype=np.float32),
    "conjugated": lambda d: torch.complex(values(d, 3), values(d, 3)).conj(),
    "negated": lambda d: torch.complex(values(d, 3), values(d, 3)).conj().imag,
}


@pytest.mark.parametrize("kind", UNFIT)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_cannot_be_copied_into_a_fixed_tensor_runs_eagerly(
    kind: str, device: torch.device
) -> None:
    def step(x: Any) -> Any:
        return x + x

    g = graphed(step, admit_after=1)
    for _ in range(2):
        x = UNFIT[kind](device)
        result = g(x)
        assert g.last.outcome is Outcome.EAGER
        assert g.last.reason is Reason.UNSUPPORTED_INPUT
        assert "x is a" in g.last.detail
        assert type(result) is type(x + x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_tensor_runs_eagerly() -> None:
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    g = graphed(lambda x: x.dequantize() * 2, admit_after=1)
    assert float(g(x)[0]) == pytest.approx(2.0)
    assert g.last.reason is Reason.UNSUPPORTED_INPUT


def test_a_nested_tensor_runs_eagerly(device: torch.device) -> None:
    x = torch.nested.nested_tensor([values(device, 2), values(device, 3)], layout=torch.jagged)
    g = graphed(lambda x: x * 2, admit_after=1)
    assert g(x).is_nested
    assert g.last.reason is Reason.UNSUPPORTED_INPUT


def test_a_fake_tensor_runs_eagerly() -> None:
    fake = _fake()
    g = graphed(lambda x: x * 2, admit_after=1)
    with fake.fake_mode:  # type: ignore[attr-defined]
        assert g(fake).shape == (3,)
    assert g.last.reason is Reason.UNSUPPORTED_INPUT


def test_a_meta_tensor_runs_eagerly() -> None:
    g = graphed(lambda x: x * 2, admit_after=1)
    assert g(torch.ones(3, device="meta")).device.type == "meta"
    assert g.last.reason is Reason.UNSUPPORTED_DEVICE


def test_inside_vmap_a_call_runs_eagerly(device: torch.device) -> None:
    g = graphed(lambda x: x * 2, admit_after=1)
    x = values(device, 3, 2)
    assert torch.equal(torch.func.vmap(g)(x), x * 2)
    assert g.last.reason is Reason.UNSUPPORTED_INPUT


def test_a_value_that_contains_itself_is_no_obstacle(device: torch.device) -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    g = graphed(lambda x, loop: x * loop[0], admit_after=1)
    x = values(device, 2)
    for _ in range(3):
        assert torch.equal(g(x, loop), x)


@pytest.mark.gpu
def test_tensors_on_two_devices_run_eagerly_with_that_reason() -> None:
    g = graphed(lambda x, i: x.cuda() + i, admit_after=1)
    assert g(torch.ones(2), torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
    assert g.last.reason is Reason.SEVERAL_DEVICES


@pytest.mark.gpu
def test_a_pinned_tensor_given_to_a_module_on_the_gpu_runs_eagerly_with_a_reason() -> None:
    module = nn.Linear(2, 2, device="cuda").requires_grad_(False)
    g = graphed(lambda x: module(x.to("cuda", non_blocking=True)), admit_after=1)
    for _ in range(3):
        x = torch.randn(1, 2).pin_memory()
        torch.testing.assert_close(g(x), module(x.cuda()))
    assert g.last.outcome is Outcome.EAGER
    assert g.last.reason in (Reason.SEVERAL_DEVICES, Reason.HOST_COPY)


# How arguments are passed.


def test_keyword_arguments_in_another_order_share_a_recording(device: torch.device) -> None:
    def step(a: Tensor, *, b: Tensor, c: float) -> Tensor:
        return (a - b) * c

    g = graphed(step, admit_after=1)
    a, b = values(device, 3), values(device, 3)
    g(a, b=b, c=2.0)
    check_replay(g, a, c=2.0, b=b)
    assert g.report().to_dict()["recordings"] == 1


def test_a_function_that_sees_the_order_of_its_keywords_gets_that_order(
    device: torch.device,
) -> None:
    def step(**parts: Tensor) -> Tensor:
        return torch.cat(list(parts.values()))

    g = graphed(step, admit_after=1)
    a, b = values(device, 2), values(device, 2)
    g(a=a, b=b)
    check_replay(g, a=a, b=b)
    check_eager_or_recorded(g, b=b, a=a)
    check_replay(g, b=b, a=a)


def test_star_arguments_and_defaults_are_told_apart(device: torch.device) -> None:
    def step(x: Tensor, *more: Tensor, scale: float = 2.0, **named: Tensor) -> Tensor:
        return x * scale + sum(more) + sum(named.values())

    g = graphed(step, admit_after=1)
    x, y = values(device, 3), values(device, 3)
    for args, kwargs in (
        ((x,), {}), ((x,), {"scale": 2.0}), ((x,), {"scale": 3.0}), ((x, y), {}),
        ((x, y, y), {"scale": 3.0}), ((x,), {"z": y}), ((x,), {"z": y, "scale": 1.0}),
    ):  # fmt: skip
        check_eager_or_recorded(g, *args, **kwargs)
        check_replay(g, *args, **kwargs)


def test_a_call_without_tensors_is_replayed(device: torch.device) -> None:
    weight = values(device, 3)
    g = graphed(lambda scale: weight * scale, admit_after=1)
    g(2.0)
    check_replay(g, 2.0)


def test_training_and_eval_alternate_on_two_recordings(device: torch.device) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(device).requires_grad_(False)
    g = graphed(module, admit_after=1)
    x = values(device, 4, 3)
    with torch.no_grad():
        for _ in range(2):
            for mode in (True, False):
                module.train(mode)
                g(x)
        for mode in (True, False, True, False):
            module.train(mode)
            before = {k: v.clone() for k, v in module.state_dict().items()}
            expected = module(x)
            after = {k: v.clone() for k, v in module.state_dict().items()}
            module.load_state_dict(before)
            result = g(x)
            assert g.last.outcome is Outcome.REPLAYED
            torch.testing.assert_close(result, expected)
            torch.testing.assert_close(dict(module.state_dict()), after)
    assert g.report().to_dict()["recordings"] == 2


def test_an_object_argument_is_matched_by_identity_and_not_kept_alive(
    device: torch.device,
) -> None:
    import gc
    import weakref

    class Holder:
        def __init__(self) -> None:
            self.weight = values(device, 3)

    g = graphed(lambda x, h: x * h.weight)
    x = values(device, 3)
    first = Holder()
    for _ in range(3):
        assert torch.equal(g(x, first), x * first.weight)
    assert g.last.outcome is Outcome.REPLAYED
    other = Holder()
    assert torch.equal(g(x, other), x * other.weight)
    assert g.last.outcome is Outcome.EAGER
    assert torch.equal(g(x, first), x * first.weight)
    g.close()
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("admit_after", [1, 2])
def test_a_module_whose_weights_are_made_at_its_first_run_is_replayed_after_it(
    admit_after: int, device: torch.device
) -> None:
    module = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.ReLU()).to(device)
    g = graphed(module, admit_after=admit_after)
    with torch.no_grad():
        for _ in range(admit_after + 3):
            x = torch.randn(2, 5, device=device)
            assert torch.equal(g(x), module(x))
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED, g.last
