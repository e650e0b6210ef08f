"""Record a step on the tape and hold its replays against eager runs of the same step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ostinato.graphs.backends import tape
from ostinato.graphs.backends.tape import TapeRecording
from ostinato.graphs.observe import observe
from ostinato.graphs.tree import flatten

CPU = torch.device("cpu")
Step = Callable[[], object]


def record(
    step: Step, inputs: Sequence[Tensor] = (), state: Sequence[Tensor] = (), *, warmups: int = 2
) -> TapeRecording:
    """Record `step` as the runner does: observed first, everything put back before each run."""
    kept = [tensor.detach().clone() for tensor in (*inputs, *state)]
    random = torch.get_rng_state()

    def restore() -> None:
        put(kept, (*inputs, *state))
        torch.set_rng_state(random)

    observation = observe(step, inputs, device=CPU)
    return tape.backend().record(
        step,
        inputs=inputs,
        device=CPU,
        warmups=warmups,
        observation=observation,
        restore=restore,
    )


def put(contents: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    with torch.inference_mode():
        for tensor, content in zip(into, contents, strict=True):
            tensor.copy_(content)


def fresh(like: Tensor) -> Tensor:
    """Other content for an input of the same shape and type."""
    if like.dtype is torch.bool:
        return torch.rand(like.shape) > 0.5
    if like.is_floating_point() or like.is_complex():
        return torch.randn(like.shape, dtype=like.dtype)
    return torch.randint(0, 3, like.shape, dtype=like.dtype)


def tensors_of(result: object) -> list[Tensor]:
    return [leaf for leaf in flatten(result)[0] if isinstance(leaf, Tensor)]


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def check_replays(
    step: Step, inputs: Sequence[Tensor] = (), state: Sequence[Tensor] = (), *, rounds: int = 3
) -> TapeRecording:
    """Assert that replays return, and leave behind, exactly what eager runs do.

    Args:
        state: Tensors from outside that `step` writes.
    """
    recording = record(step, inputs, state)
    outside = {tensor.untyped_storage().data_ptr() for tensor in (*inputs, *state)}
    for seed in range(rounds):
        given = [fresh(tensor) for tensor in inputs]
        before = copies(state)
        put(given, inputs)
        torch.manual_seed(seed)
        expected = copies(tensors_of(step()))
        expected_after = copies((*inputs, *state))

        put([*given, *before], (*inputs, *state))
        torch.manual_seed(seed)
        with torch.inference_mode():
            for leaf in tensors_of(recording.result):
                if leaf.untyped_storage().data_ptr() not in outside:
                    leaf.untyped_storage().fill_(0)  # a replay that does nothing must not pass
        recording.replay()
        same(tensors_of(recording.result), expected)
        same((*inputs, *state), expected_after)
        assert torch.initial_seed() == seed
    return recording


def same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(found) == len(expected)
    for mine, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, equal_nan=True)
        assert mine.stride() == eager.stride() or not mine.is_contiguous()
