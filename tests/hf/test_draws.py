"""A forward that draws random numbers is the model's own: a longer cache would draw others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.hf import Answer, Delegated, accelerate

Make = Callable[..., Any]


def generate(model: Any, prompt: dict[str, Tensor], **options: Any) -> tuple[list[int], Tensor]:
    """Generate under a seed; returns the tokens, and the state of the random numbers after."""
    torch.manual_seed(7)
    tokens = model.generate(**prompt, max_new_tokens=12, **options)
    return tokens.tolist(), torch.get_rng_state()


def with_dropout(model: Any, rate: float) -> Any:
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = rate
        elif hasattr(part, "attention_dropout"):
            part.attention_dropout = rate
    return model


@pytest.mark.parametrize("samples", [False, True])
def test_with_dropout_the_tokens_are_those_of_generate(
    kind: str, samples: bool, tiny: Make, prompt: Make
) -> None:
    model = with_dropout(tiny(kind), 0.3).train()
    with accelerate(model) as fast:
        for _ in range(3):
            ours, after = generate(fast, prompt(2, 9), do_sample=samples)
            assert fast.last.reason is Delegated.DRAWS_IN_FORWARD
            assert "draws random numbers in training mode" in fast.last.detail
            theirs, expected = generate(model, prompt(2, 9), do_sample=samples)
            assert ours == theirs
            assert torch.equal(after, expected)


def test_each_mode_is_asked_anew(tiny: Make, prompt: Make) -> None:
    model = with_dropout(tiny("llama"), 0.3)
    with accelerate(model) as fast:
        for trains in (True, False, True, False):
            fast.train(trains)
            ours, _ = generate(fast, prompt())
            assert (fast.last.outcome is Answer.DELEGATED) == trains
            assert ours == generate(model, prompt())[0]


def test_one_part_in_training_mode_is_enough(tiny: Make, prompt: Make) -> None:
    model = with_dropout(tiny("llama"), 0.3)
    model.model.layers[1].self_attn.train()
    with accelerate(model) as fast:
        ours, _ = generate(fast, prompt())
        assert fast.last.reason is Delegated.DRAWS_IN_FORWARD
        assert "training mode" in fast.last.detail
    assert ours == generate(model, prompt())[0]


def test_a_rate_that_is_raised_later_is_seen(tiny: Make, prompt: Make) -> None:
    model = with_dropout(tiny("llama"), 0.0).train()
    with accelerate(model) as fast:
        generate(fast, prompt())
        assert fast.last.outcome is not Answer.DELEGATED
        with_dropout(model, 0.3)
        ours, _ = generate(fast, prompt())
        assert fast.last.reason is Delegated.DRAWS_IN_FORWARD
    assert ours == generate(model, prompt())[0]


def test_a_model_that_always_draws_is_found_in_evaluation_mode(tiny: Make, prompt: Make) -> None:
    class Noisy(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(self.inner(x), 0.3)

    model = tiny("llama")
    model.model.layers[0].mlp = Noisy(model.model.layers[0].mlp).eval()
    with accelerate(model) as fast:
        ours, _ = generate(fast, prompt())
        assert fast.last.reason is Delegated.DRAWS_IN_FORWARD
        assert "evaluation mode" in fast.last.detail
    assert ours == generate(model, prompt())[0]


def test_a_model_that_draws_in_decode_steps_alone_is_found_too(tiny: Make, prompt: Make) -> None:
    model = tiny("llama")

    def disturb(_: Any, __: Any, out: Tensor) -> Tensor:
        return nn.functional.dropout(out, 0.3) if out.shape[1] == 1 else out

    model.model.layers[0].mlp.register_forward_hook(disturb)
    with accelerate(model) as fast:
        ours, after = generate(fast, prompt())
        assert fast.last.reason is Delegated.DRAWS_IN_FORWARD
    theirs, expected = generate(model, prompt())
    assert ours == theirs
    assert torch.equal(after, expected)


def test_without_draws_training_mode_is_replayed(tiny: Make, prompt: Make) -> None:
    model = with_dropout(tiny("llama"), 0.0).train()
    with accelerate(model) as fast:
        before = torch.get_rng_state()
        ours = fast.generate(**prompt(), max_new_tokens=12, do_sample=False)
        assert fast.last.outcome is Answer.REPLAYED
        assert torch.equal(torch.get_rng_state(), before)
    assert ours.tolist() == model.generate(**prompt(), max_new_tokens=12, do_sample=False).tolist()
