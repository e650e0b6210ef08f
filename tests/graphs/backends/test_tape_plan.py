"""The tape's plan: memory is shared only by what never lives together; calls keep their meaning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphs.backends.taping import CPU
from ostinato.graphs.backends.tape_arena import Arena
from ostinato.graphs.backends.tape_doors import fastest
from ostinato.graphs.backends.tape_plan import Making, _pack, making
from ostinato.graphs.backends.tape_take import take
from ostinato.graphs.backends.tape_trial import Trials
from ostinato.graphs.backends.tape_variants import out_variant

aten = torch.ops.aten

lives = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 500)).map(
    lambda b: (min(b[:2]), max(b[:2]), b[2])
)


@given(st.lists(lives, max_size=25))
def test_blocks_that_live_together_never_overlap(blocks: list[tuple[int, int, int]]) -> None:
    named = [(*block, name) for name, block in enumerate(blocks)]
    starts, size = _pack(named)
    for first, last, nbytes, name in named:
        assert starts[name] % 64 == 0
        assert starts[name] + nbytes <= size
        for other_first, other_last, other_bytes, other in named:
            if other != name and first <= other_last and other_first <= last:
                apart = starts[name] + nbytes <= starts[other]
                assert apart or starts[other] + other_bytes <= starts[name]


def test_blocks_that_follow_each_other_share_memory() -> None:
    starts, size = _pack([(0, 1, 64, 0), (1, 2, 64, 1), (2, 3, 64, 2)])
    assert starts[0] == starts[2]
    assert size == 128


def test_memory_of_the_arena_cannot_grow() -> None:
    storage = Arena(256, {0: 64}).storage(0, 4)
    tensor = torch.empty(0).set_(storage, 0, (), ())
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(3)


@pytest.mark.parametrize(
    ("func", "how"),
    [
        (aten.add.Tensor, Making.OUT),
        (aten.mm.default, Making.OUT),
        (aten.topk.default, Making.OUT),
        (aten.full.default, Making.OUT),
        (aten.clone.default, Making.COPY),
        (aten._to_copy.default, Making.COPY),
        (aten.zeros_like.default, Making.ZERO),
        (aten.empty.memory_format, Making.NOTHING),
        (aten.native_layer_norm.default, None),
        (aten.convolution.default, None),
        (aten.embedding.default, None),
    ],
)
def test_how_a_call_fills_given_memory(func: object, how: Making | None) -> None:
    assert making(func) is how  # type: ignore[arg-type]


def test_a_kernel_that_uses_its_result_as_scratch_is_not_given_memory() -> None:
    assert out_variant(aten.mse_loss.default) is not None
    x = torch.randn(3, 4)
    with torch.no_grad():
        program = take(lambda: (torch.nn.functional.mse_loss(x, x), x + 1), [x], CPU).program
    trials = Trials(program)
    assert [trials.fills_exactly(call) for call in program.calls] == [False, True]


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.mul.Tensor, (torch.ones(2), torch.ones(2))),
        (aten.mul.Tensor, (torch.ones(2), 2.0)),
        (aten.silu.default, (torch.ones(2),)),
        (aten.index_copy_.default, (torch.ones(2), 0, torch.tensor([0]), torch.ones(1))),
        (aten.transpose.int, (torch.ones(2, 3), 0, 1)),
        (aten.mse_loss.default, (torch.ones(2), torch.ones(2))),
    ],
)
def test_a_faster_door_makes_the_same_call(func: torch._ops.OpOverload, args: object) -> None:
    assert isinstance(args, tuple)
    invocation = fastest(func, args, {})
    assert invocation.door is not func._op
    expected = func(*[a.clone() if isinstance(a, Tensor) else a for a in args])
    found = invocation.door(*invocation.args, **invocation.kwargs)
    torch.testing.assert_close(found, expected)


def test_looking_for_a_door_runs_nothing() -> None:
    x = torch.ones(2)
    fastest(aten.add_.Tensor, (x, torch.ones(2)), {})
    assert x.eq(1).all()


def test_a_call_that_no_binding_makes_goes_through_torch_ops() -> None:
    x = torch.ones(2, 3)
    func = aten._unsafe_view.default
    assert fastest(func, (x, [3, float("nan")]), {}).door is func._op
