"""Masks: made once a step, in the form that attention adds to its scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.hf import accelerate
from ostinato.hf.plan import Plan
from ostinato.hf.probe import study
from ostinato.hf.state import DecodeState
from ostinato.hf.steps import DecodeStep, Parts

Make = Callable[..., Any]
CPU = torch.device("cpu")


class Selects(TorchDispatchMode):
    """Counts the kernels that make numbers of flags."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.where.self
        return func(*args, **(kwargs or {}))


def test_layers_make_no_mask_of_their_own_in_a_decode_step(kind: str, tiny: Make) -> None:
    model = tiny(kind)
    with torch.no_grad():
        admission, anatomy = study(model, CPU)
        assert admission.rule.barred == "infinite"
        state = DecodeState(
            anatomy.layers, rows=2, length=16, vocabulary=97, dtype=anatomy.dtype, device=CPU
        )
        parts = Parts(model, admission.call, admission.rule, state, Plan())
        with Selects() as selects:
            DecodeStep(parts).logits()
    # One for each kind of layer; each of the two layers would make one more.
    assert selects.count == (2 if kind == "qwen2-mixed" else 1)


def test_eager_attention_gets_the_lowest_number_as_from_transformers(tiny: Make) -> None:
    with torch.no_grad():
        admission, _ = study(tiny(attention="eager"), CPU)
    assert admission.rule.barred == "lowest"


@pytest.mark.parametrize("how", ["raises", "is wrong"])
def test_a_model_that_wants_flags_gets_flags(how: str, tiny: Make, prompt: Make) -> None:
    model = tiny()

    def judge(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        mask = kwargs["attention_mask"]
        if mask is None or mask.dtype is torch.bool:
            return None
        if how == "raises":
            raise TypeError("a mask must hold flags")
        return args, {**kwargs, "attention_mask": mask * 0}

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(judge, with_kwargs=True)
    with torch.no_grad():
        assert study(model, CPU)[0].rule.barred == "flag"
    with accelerate(model) as fast:
        inputs = prompt(2, 12)
        ours = fast.generate(**inputs, max_new_tokens=12)
        assert fast.last.replayed_steps > 0
    assert ours.tolist() == model.generate(**inputs, max_new_tokens=12).tolist()
