"""Both steps obey the rules of a recording: no host reads, no shapes that depend on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ostinato.graphs.observe import observe
from ostinato.hf.admission import admit
from ostinato.hf.plan import Plan, Sampling
from ostinato.hf.probe import probe
from ostinato.hf.state import DecodeState
from ostinato.hf.steps import DecodeStep, Parts, PrefillStep

Make = Callable[..., Any]
EVERYTHING = Plan(
    samples=True, stops=True, penalises=True, holds_off_eos=True, suppresses=True,
    suppresses_first=True, tempers=True, top_k=5, cuts_top_p=True, cuts_min_p=True, normalises=True,
)  # fmt: skip


@pytest.mark.parametrize("plan", [Plan(), EVERYTHING], ids=["greedy", "everything"])
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_nothing_in_either_step_is_refused(
    kind: str, plan: Plan, is_padded: bool, attention: str, tiny: Make, prompt: Make
) -> None:
    model = tiny(kind, attention=attention)
    device = torch.device("cpu")
    admission = admit(model)
    with torch.no_grad():
        anatomy = probe(model, admission.call, device)
        state = DecodeState(
            anatomy.layers, rows=2, length=64, vocabulary=97, dtype=anatomy.dtype, device=device
        )
        ids, mask = prompt(2, 16).values()
        state.begin(ids, mask.bool(), Sampling(plan=plan), pad=0)
        valid = mask.bool() if is_padded or admission.rule.is_always_given else None
        inputs = [ids, (mask.cumsum(-1) - 1).clamp(min=0)]
        parts = Parts(model, admission.call, admission.rule, state, plan)
        prefill, decode = PrefillStep(parts), DecodeStep(parts)
        seen = observe(lambda: prefill(*inputs, valid), inputs, device=device)
        assert seen.refusals == []
        seen = observe(decode, [], device=device)
        assert seen.refusals == []
        assert seen.draws is plan.samples
