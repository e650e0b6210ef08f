"""Extents: an output dimension is cut because it follows a size, not because it equals one."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ostinato.graphs import Buckets, Outcome, graphed
from ostinato.graphs.extents import (
    Axis,
    Extent,
    Undetermined,
    observed_extents,
    output_extents,
)
from ostinato.graphs.tree import flatten

SIZES = (4, 8, 16, 64)


def extents(fn: Callable[..., object], *args: object, **buckets: Any) -> Any:
    """Extents of `fn(*args)` whose tensors are all bucketed on dim 0, or as `dims` says."""
    dims = buckets.pop("dims", {0: 0})
    sizes = buckets.pop("sizes", SIZES)
    kwargs = buckets.pop("kwargs", {})
    leaves, _ = flatten((args, kwargs))
    together: dict[int, list[tuple[int, int]]] = {}
    for leaf, dim in dims.items():
        tensor = leaves[leaf]
        together.setdefault(tensor.shape[dim], []).append((leaf, dim % tensor.dim()))
    axes = [Axis(tuple(where), size, sizes) for size, where in together.items()]
    return output_extents(fn, args, kwargs, axes)


def forms(found: Any) -> list[list[tuple[int, ...]] | None]:
    """(constant, multiples...) per dimension and leaf."""
    return [None if leaf is None else [(e.constant, *e.per_axis) for e in leaf] for leaf in found]


def no_fakes_in(*values: object) -> bool:
    return not any(isinstance(value, FakeTensor) for value in values)


# What is found


def test_a_hidden_size_that_equals_the_bucket_is_not_cut() -> None:
    layer = nn.Linear(64, 64)
    for size in (5, 63, 64):
        assert forms(extents(layer, torch.zeros(size, 64))) == [[(0, 1), (64, 0)]]


@pytest.mark.parametrize(
    ("fn", "form"),
    [
        (lambda x: x @ x.t(), [(0, 1), (0, 1)]),
        (lambda x: torch.cat([x.new_zeros(1, 3), x]), [(1, 1), (3, 0)]),
        (lambda x: x[1:], [(-1, 1), (3, 0)]),
        (lambda x: x.repeat_interleave(2, 0), [(0, 2), (3, 0)]),
        (lambda x: x.reshape(-1), [(0, 3)]),
        (lambda x: x.sum(0), [(3, 0)]),
        (lambda x: x.sum(), []),
        (lambda x: x.t(), [(3, 0), (0, 1)]),
        (lambda x: torch.ones(7), [(7, 0)]),
    ],
)
def test_a_fixed_number_plus_a_multiple_of_the_size_is_found(
    fn: Callable[..., object], form: list[tuple[int, int]]
) -> None:
    for size in (1, 3, 8, 64):
        assert forms(extents(fn, torch.zeros(size, 3))) == [form]


def test_at_gives_the_size_of_the_dimension_for_real_sizes() -> None:
    assert Extent(1, (2, 3)).at((10, 100)) == 321
    assert Extent(1, (0, 3)).follows
    assert not Extent(1, (0, 0)).follows


def test_axes_of_their_own_are_told_apart() -> None:
    found = extents(
        lambda a, b: (a @ b.t(), torch.cat([a, b])),
        torch.zeros(5, 3),
        torch.zeros(7, 3),
        dims={0: 0, 1: 0},
    )
    assert forms(found) == [[(0, 1, 0), (0, 0, 1)], [(0, 1, 1), (3, 0, 0)]]


def test_two_dimensions_of_equal_size_and_buckets_vary_together() -> None:
    found = extents(lambda a, b: a + b, torch.zeros(5, 3), torch.zeros(5, 3), dims={0: 0, 1: 0})
    assert forms(found) == [[(0, 1), (3, 0)]]


def test_nested_outputs_have_an_entry_per_leaf_and_plain_values_none() -> None:
    @dataclass
    class Output:
        logits: Tensor
        name: str
        extra: dict[str, list[Tensor | None]]

    def fn(x: Tensor) -> Output:
        return Output(x, "answer", {"parts": [x.sum(), None]})

    assert forms(extents(fn, torch.zeros(5, 2))) == [[(0, 1), (2, 0)], None, [], None]


def test_nested_and_keyword_arguments_are_varied_where_they_are() -> None:
    found = extents(
        lambda batch, *, mask: batch["ids"][0] * mask,
        {"ids": [torch.zeros(2, 5)]},
        kwargs={"mask": torch.zeros(2, 5)},
        dims={0: 1, 1: -1},
    )
    assert forms(found) == [[(2, 0), (0, 1)]]


def test_a_bucket_of_one_size_is_taken_at_that_size() -> None:
    assert forms(extents(lambda x: x * 2, torch.zeros(1, 3), sizes=(1,))) == [[(1, 0), (3, 0)]]


def test_sizes_up_to_two_are_explained_from_both() -> None:
    assert forms(extents(lambda x: x * 2, torch.zeros(1, 3), sizes=(1, 2))) == [[(0, 1), (3, 0)]]


def test_no_size_beyond_the_largest_bucket_is_tried() -> None:
    positions = nn.Embedding(16, 8)
    table = torch.arange(16)

    def fn(x: Tensor) -> Tensor:
        rows: Tensor = positions(table[: x.shape[0]])
        return x + rows

    for size in (1, 5, 15, 16):
        assert forms(extents(fn, torch.zeros(size, 8), sizes=(4, 8, 16))) == [[(0, 1), (8, 0)]]


def test_a_function_that_takes_its_bucket_sizes_only_is_explained_from_those() -> None:
    found = extents(lambda x: x.view(-1, 16).view(-1), torch.zeros(32), sizes=(16, 32, 64))
    assert forms(found) == [[(0, 1)]]


def test_one_is_not_tried_while_there_are_other_sizes_because_ops_treat_it_apart() -> None:
    found = extents(lambda x: x.squeeze(), torch.zeros(2, 3), sizes=(1, 2, 3))
    assert forms(found) == [[(0, 1), (3, 0)]]


@pytest.mark.parametrize("given", [torch.zeros(3, 5).t(), torch.zeros(1, 3).expand(5, 3)])
def test_transposed_and_expanded_inputs_keep_their_layout(given: Tensor) -> None:
    def layout(x: Tensor) -> tuple[bool, ...]:
        return x.is_contiguous(), x.t().is_contiguous(), x.stride(0) == 0

    def fn(x: Tensor) -> Tensor:
        assert layout(x) == layout(given)
        return x * 1

    assert forms(extents(fn, given)) == [[(0, 1), (3, 0)]]


def test_the_same_tensor_given_twice_stays_one_tensor() -> None:
    x = torch.zeros(5)

    def fn(a: Tensor, b: Tensor) -> Tensor:
        assert a is b
        return a

    assert forms(extents(fn, x, x, dims={0: 0, 1: 0})) == [[(0, 1)]]


# What is refused


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[: x.shape[0] // 2],
        lambda x: x[: -(-x.shape[0] // 4)],
        lambda x: x[: 2 * (x.shape[0] // 2)],
        lambda x: x[: x.shape[0] // 16],
        lambda x: x[: min(x.shape[0], 12)],
        lambda x: (x[:, None] * x).reshape(-1),
    ],
)
def test_a_size_that_is_no_straight_line_is_refused(fn: Callable[..., object]) -> None:
    for size in (3, 5, 8, 10, 64):
        with pytest.raises(Undetermined, match=r"dimension 0 of the output is .* not a fixed"):
            extents(fn, torch.zeros(size))


def test_a_product_of_two_sizes_is_refused_and_named() -> None:
    with pytest.raises(Undetermined, match=r"dimension 0 of output 'flat' is 35, .*\(5, 7\)"):
        extents(
            lambda a, b: {"flat": (a @ b.t()).reshape(-1)},
            torch.zeros(5, 3),
            torch.zeros(7, 3),
            dims={0: 0, 1: 0},
        )


def test_a_plain_value_that_follows_the_size_is_refused() -> None:
    with pytest.raises(Undetermined, match=r"output '1' is 5 and 8 .*freeze") as caught:
        extents(lambda x: (x, x.shape[0]), torch.zeros(5))
    assert caught.value.ran


def test_a_number_of_outputs_that_follows_the_size_is_refused() -> None:
    with pytest.raises(Undetermined, match="5 parts at size 5 and 8"):
        extents(lambda x: x.unbind(), torch.zeros(5))


def test_a_number_of_dimensions_that_follows_the_size_is_refused() -> None:
    with pytest.raises(Undetermined, match="has 1 and 2 dimensions"):
        extents(lambda x: x.squeeze(), torch.zeros(1, 3))


@pytest.mark.parametrize(
    ("fn", "op"),
    [
        (lambda x: x * x.sum().item(), "aten._local_scalar_dense.default"),
        (lambda x: x if x.any() else -x, "aten._local_scalar_dense.default"),
        (lambda x: x[x > 0], "aten.nonzero.default"),
        (lambda x: x.unique(), "aten._unique2.default"),
    ],
)
def test_a_function_that_reads_values_is_refused_by_the_name_of_the_op(
    fn: Callable[..., object], op: str
) -> None:
    with pytest.raises(Undetermined, match=op) as caught:
        extents(fn, torch.zeros(5))
    assert caught.value.op == op
    assert not caught.value.ran


def test_an_error_of_the_function_is_given_in_its_own_words() -> None:
    def fn(x: Tensor) -> Tensor:
        raise RuntimeError("no such head\nand more")

    with pytest.raises(Undetermined, match=r"at size 5 \(RuntimeError: no such head\)") as caught:
        extents(fn, torch.zeros(5))
    assert caught.value.op is None


def test_a_function_that_takes_one_size_only_is_refused() -> None:
    with pytest.raises(Undetermined, match="at size 8"):
        extents(lambda x: x.view(5), torch.zeros(5))


def test_arguments_that_must_agree_but_have_other_buckets_get_a_hint() -> None:
    with pytest.raises(Undetermined, match="need the same bucket sizes"):
        output_extents(
            lambda a, b: a + b,
            (torch.zeros(5), torch.zeros(5)),
            {},
            (Axis(((0, 0),), 5, (8,)), Axis(((1, 0),), 5, (16,))),
        )


# What remains: nothing


class Forgetful(nn.Module):
    """Leaves something behind in every way that Python offers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(()))
        self.table: Tensor | None = None
        self.calls = 0
        self.history: list[Tensor] = []
        self.by_name: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.history.append(x)
        self.by_name["x"] = x
        if self.table is None:
            self.table = torch.arange(64.0)
        self.newcomer = x
        self.seen += 1
        self.register_buffer("late", x, persistent=False)
        normed: Tensor = self.norm(x)
        return normed + self.table[:3]


def snapshot_of(module: Forgetful) -> list[object]:
    return [
        {name: buffer.clone() for name, buffer in module.named_buffers()},
        module.table,
        module.calls,
        list(module.history),
        dict(module.by_name),
        sorted(module.__dict__),
    ]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: module,
        lambda module: nn.Sequential(module),
        lambda module: module.forward,
        lambda module: lambda x: module(x),
        lambda module: functools.partial(module),
        lambda module: torch.no_grad()(lambda x: module(x)),
    ],
    ids=["module", "inside a module of torch", "bound method", "closure", "partial", "decorated"],
)
def test_a_module_is_left_as_it_was(wrap: Callable[[Forgetful], Callable[..., object]]) -> None:
    module = Forgetful().train()
    before = snapshot_of(module)
    assert forms(extents(wrap(module), torch.randn(5, 3))) == [[(0, 1), (3, 0)]]
    after = snapshot_of(module)
    assert str(before) == str(after)
    assert no_fakes_in(*vars(module).values(), *module.buffers(), module.norm.running_mean)
    assert module(torch.randn(5, 3)).shape == (5, 3)


def test_a_module_is_left_as_it_was_also_when_the_run_fails() -> None:
    module = Forgetful().train()
    before = snapshot_of(module)
    with pytest.raises(Undetermined):
        extents(lambda x: module(x).sum().item(), torch.randn(5, 3))
    assert str(before) == str(snapshot_of(module))


def test_real_tensors_in_reach_are_never_written_to() -> None:
    counter, table = torch.zeros(()), torch.zeros(4, 4)

    def fn(x: Tensor) -> Tensor:
        counter.add_(1)
        table.mul_(2).add_(counter)
        table[0] = x[:4]
        table.copy_(torch.ones(4, 4))
        torch._foreach_add_([counter, table], 1)
        torch.add(counter, 1, out=counter)
        return x + counter

    extents(fn, torch.ones(5))
    assert counter.item() == 0
    assert table.eq(0).all()


def test_the_arguments_are_never_written_to() -> None:
    x, state = torch.zeros(5), torch.zeros(3)

    def fn(x: Tensor, state: Tensor) -> Tensor:
        state.add_(1)
        return x.add_(1)

    extents(fn, x, state)
    assert x.eq(0).all()
    assert state.eq(0).all()


def test_objects_given_as_arguments_are_left_as_they_were() -> None:
    class Cache:
        __slots__ = ("__hidden", "keys", "length")

        def __init__(self) -> None:
            self.length = 0
            self.__hidden = 1

        def update(self, x: Tensor) -> Tensor:
            self.keys = x
            self.length += 1
            self.__hidden += 1
            return x

        def hidden(self) -> int:
            return self.__hidden

    cache = Cache()
    extents(lambda x, c: c.update(x), torch.zeros(5), cache)
    assert cache.length == 0
    assert cache.hidden() == 1
    assert not hasattr(cache, "keys")


_seen_globally: dict[str, Tensor] = {}
_calls_globally = 0


@functools.lru_cache
def _cached_table(size: int) -> Tensor:
    return torch.arange(float(size))


def test_globals_closures_defaults_and_caches_hold_no_fake_tensors() -> None:
    last: Tensor | None = None

    def remembering(x: Tensor, kept: list[Tensor] = []) -> Tensor:  # noqa: B006
        nonlocal last
        global _calls_globally
        last = x
        kept.append(x)
        _seen_globally["x"] = x
        _calls_globally += 1
        remembering.mark = x  # type: ignore[attr-defined]
        return x + _cached_table(x.shape[0])

    extents(remembering, torch.zeros(5))
    assert last is None
    assert remembering.__defaults__ == ([],)
    assert _seen_globally == {}
    assert _calls_globally == 0
    assert not hasattr(remembering, "mark")
    assert no_fakes_in(_cached_table(5))


class Recorder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.order: OrderedDict[str, Tensor | None] = OrderedDict(a=None, b=None)

    def forward(self, x: Tensor) -> Tensor:
        return self.note(x)

    def note(self, x: Tensor) -> Tensor:
        _seen_globally["x"] = x
        self.order.move_to_end("a")
        self.order["c"] = x
        return x


def test_globals_that_a_method_of_a_module_uses_hold_no_fake_tensors() -> None:
    extents(Recorder(), torch.zeros(5))
    assert _seen_globally == {}


def test_an_ordered_dict_is_in_its_old_order_and_whole() -> None:
    module = Recorder()
    extents(module, torch.zeros(5))
    assert list(module.order.items()) == [("a", None), ("b", None)]
    assert module.order.popitem() == ("b", None)
    assert module.order.popitem() == ("a", None)


def test_no_fake_tensor_survives() -> None:
    def alive() -> int:
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # asking some old objects for their class warns
            return sum(isinstance(each, FakeTensor) for each in gc.get_objects())

    module = Forgetful().train()
    before = alive()  # torch.compile keeps some of its own
    extents(module, torch.randn(5, 3))
    assert alive() <= before


def test_every_random_generator_is_left_as_it_was() -> None:
    numpy = pytest.importorskip("numpy")
    private = torch.Generator().manual_seed(3)

    def fn(x: Tensor) -> Tensor:
        random.random()
        numpy.random.rand()
        torch.manual_seed(1)
        private.manual_seed(5)
        noise = torch.rand(x.shape, generator=private)
        return nn.functional.dropout(x) + torch.randn_like(x) + noise

    def states() -> list[object]:
        return [
            random.getstate(),
            str(numpy.random.get_state()),
            torch.get_rng_state().tolist(),
            private.get_state().tolist(),
        ]

    before = states()
    assert forms(extents(fn, torch.zeros(5))) == [[(0, 1)]]
    assert states() == before


def test_no_warning_is_emitted() -> None:
    def fn(x: Tensor) -> Tensor:
        warnings.warn("slow path", stacklevel=1)
        x.data_ptr()
        return x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        extents(fn, torch.zeros(5))
    assert caught == []


# Where it runs


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_callers_grad_mode_is_that_of_the_run(mode: Any) -> None:
    layer = nn.Linear(3, 3)

    def fn(x: Tensor) -> Tensor:
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)
        return layer(x)  # type: ignore[no-any-return]

    with mode():
        assert forms(extents(fn, torch.zeros(5, 3))) == [[(0, 1), (3, 0)]]
        assert no_fakes_in(layer(torch.zeros(5, 3)))


def test_autocast_is_that_of_the_caller_and_keeps_no_fake_weights() -> None:
    layer = nn.Linear(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):

        def fn(x: Tensor) -> Tensor:
            y: Tensor = layer(x)
            assert y.dtype == torch.bfloat16
            return y

        assert forms(extents(fn, torch.zeros(5, 3))) == [[(0, 1), (3, 0)]]
        assert torch.is_autocast_cache_enabled()
        assert no_fakes_in(layer(torch.zeros(5, 3)))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own imports
def test_a_compiled_module_inside_is_run_as_what_it_was_compiled_from() -> None:
    layer = torch.compile(nn.Linear(3, 3))
    assert forms(extents(lambda x: layer(x), torch.zeros(5, 3))) == [[(0, 1), (3, 0)]]


def test_tensors_made_in_inference_mode_are_taken() -> None:
    with torch.inference_mode():
        x, bias = torch.zeros(5, 3), torch.zeros(3)
    assert forms(extents(lambda x: x + bias, x)) == [[(0, 1), (3, 0)]]


def test_constants_that_the_function_makes_have_values() -> None:
    def fn(x: Tensor) -> Tensor:
        return x[: torch.tensor(2).item()] if torch.tensor([3, 4])[0] else x

    with pytest.raises(Undetermined):  # what a constant is indexed to is not known any more
        extents(fn, torch.zeros(5))
    assert forms(extents(lambda x: x * torch.tensor(2).item(), torch.zeros(5))) == [[(0, 1)]]


# From real runs


def test_real_runs_explain_the_same() -> None:
    def fn(x: Tensor) -> tuple[Tensor, str]:
        return torch.cat([x.new_zeros(1, 64), x[x[:, 0] >= 0]]), "y"

    runs = [((n,), fn(torch.zeros(n, 64))) for n in (5, 8, 11)]
    assert forms(observed_extents(*runs[0], *runs[1])) == [[(1, 1), (64, 0)], None]
    assert forms(observed_extents(*runs[0], *runs[1], runs[2])) == [[(1, 1), (64, 0)], None]


def test_a_third_real_run_shows_what_two_cannot() -> None:
    runs = [((n,), torch.zeros(n // 2)) for n in (4, 5, 9)]
    assert forms(observed_extents(*runs[0], *runs[1])) == [[(2, 0)]]
    with pytest.raises(Undetermined, match="not a fixed number"):
        observed_extents(*runs[0], *runs[1], runs[2])


def test_real_runs_at_equal_sizes_explain_nothing() -> None:
    with pytest.raises(Undetermined, match="axis 0"):
        observed_extents((5,), torch.zeros(5), (5,), torch.zeros(5))
    with pytest.raises(Undetermined, match="axis 0"):
        observed_extents((5, 6), torch.zeros(5), (7, 8), torch.zeros(7))


# Real models


def test_a_transformers_decoder_with_a_static_cache_is_explained_and_left_alone() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=64,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    cache = transformers.StaticCache(config=config, max_cache_len=64)
    ids = torch.randint(64, (2, 8))

    def lengths() -> list[tuple[bool, int]]:
        return [(layer.is_initialized, layer.cumulative_length.item()) for layer in cache.layers]

    # Newer versions deprecate the old name.
    named = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def step(ids: Tensor) -> Any:
        return model(input_ids=ids, **{named: cache}).logits

    before = lengths()
    with torch.inference_mode():
        found = extents(step, ids, dims={0: 1})
        assert forms(found) == [[(2, 0), (0, 1), (64, 0)]]
        assert lengths() == before
        step(ids)
        filled = [layer.keys.clone() for layer in cache.layers]
        # Before 5.20 the model asks for the value of the length of a cache that holds something.
        asks = tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 20)
        with pytest.raises(Undetermined, match="needs real data") if asks else nullcontext():
            assert forms(extents(step, ids, dims={0: 1})) == [[(2, 0), (0, 1), (64, 0)]]
        assert [length for _, length in lengths()] == [8, 8]
        for layer, keys in zip(cache.layers, filled, strict=True):
            assert torch.equal(layer.keys, keys)


def test_a_model_output_keeps_its_parts_apart() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=32,
        max_position_embeddings=16,
    )
    model = transformers.BertModel(config).eval()
    ids, mask = torch.zeros(3, 16, dtype=torch.long), torch.ones(3, 16, dtype=torch.long)
    with torch.no_grad():
        found = extents(
            lambda **batch: model(**batch),
            kwargs={"input_ids": ids, "attention_mask": mask},
            dims={0: 1, 1: 1},
            sizes=(4, 8, 16),
        )
    assert forms(found) == [[(3, 0), (0, 1), (16, 0)], [(3, 0), (16, 0)]]


@pytest.mark.gpu
def test_a_module_on_a_gpu_is_explained_without_touching_it() -> None:
    norm = nn.BatchNorm1d(3)
    module = nn.Sequential(nn.Linear(3, 3), norm, nn.Dropout()).cuda().train()
    x = torch.randn(5, 3, device="cuda")
    state = torch.cuda.get_rng_state()
    assert forms(extents(module, x)) == [[(0, 1), (3, 0)]]
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 0
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_size_that_the_function_cannot_take_is_tried_without_a_word_from_torch() -> None:
    runner = graphed(
        lambda x: x.unfold(0, 2, 1) * 1,
        admit_after=1,
        backend="tape",
        buckets={"x": Buckets(dim=0, sizes=(4, 8))},
    )
    said: list[logging.LogRecord] = []
    torch_s = logging.getLogger("torch._subclasses.fake_tensor")
    hearing = logging.Handler()
    hearing.emit = said.append  # type: ignore[method-assign]
    torch_s.addHandler(hearing)
    try:
        for _ in range(2):
            x = torch.arange(3.0)
            assert torch.equal(runner(x), x.unfold(0, 2, 1))
        assert runner.last is not None
        assert runner.last.outcome is Outcome.REPLAYED
        assert not said
        torch_s.error("heard")
    finally:
        torch_s.removeHandler(hearing)
    assert [record.getMessage() for record in said] == ["heard"]
