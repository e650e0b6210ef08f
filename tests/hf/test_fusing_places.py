"""Where fusing is sound: nobody may tell the kernel from the calls that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hf.decode_layer import DecodeLayer
from ostinato.hf.fusing import FusedRun, Plan, Strayed
from ostinato.hf.fusing.listen import Listener
from ostinato.hf.fusing.plan import Kind, Launch, Match, Slot, is_sound, settle_on
from ostinato.hf.fusing.settling import found_in
from ostinato.hf.plan import Plan as SamplingPlan
from ostinato.hf.probe import study
from ostinato.hf.state import DecodeState
from ostinato.hf.steps import DecodeStep, Parts

Make = Callable[..., Any]
ALL = {"norm": 1, "rotary": 1, "gate": 1}


@pytest.fixture(autouse=True)
def _nothing_is_recorded_for_gradients() -> Any:
    with torch.no_grad():
        yield


def planned(run: Callable[[], Any]) -> Plan:
    with Listener() as listener:
        result = run()
    stream = listener.stream()
    del result
    return settle_on(stream, found_in(stream))


def fused(plan: Plan, run: Callable[[], Any]) -> Any:
    """Run by a plan; for bits, one without gates: the interpreter has an exponential of its own."""
    with FusedRun(plan):
        return run()


def test_every_part_of_a_layer_is_found() -> None:
    plan = planned(DecodeLayer())
    assert plan.places == ALL
    assert plan.calls_saved == 16
    assert [launch.kernel for _, launch in plan.launches.values()] == [
        "square", "scale", "turn_and_keep", "gate",
    ]  # fmt: skip


def test_every_layer_of_a_model_is_found(kind: str, tiny: Make) -> None:
    model = tiny(kind)
    admission, anatomy = study(model, torch.device("cpu"))
    state = DecodeState(
        anatomy.layers,
        rows=2,
        length=16,
        vocabulary=97,
        dtype=anatomy.dtype,
        device=torch.device("cpu"),
    )
    step = DecodeStep(Parts(model, admission.call, admission.rule, state, SamplingPlan()))
    places = planned(step.logits).places
    if kind == "gpt2":  # it has none of the three
        assert places == {}
    else:
        # Qwen3 has norms of its own on each layer's queries and keys.
        assert places == {"norm": 9 if kind == "qwen3" else 5, "rotary": 2, "gate": 2}


class Odd(DecodeLayer):
    """A layer with one oddity."""

    def __init__(self, oddity: str) -> None:
        super().__init__()
        self.oddity = oddity
        self.seen: list[Tensor] = []

    def norm(self) -> tuple[Tensor, Tensor]:
        total = self.x + self.added
        if self.oddity == "sum is read before the square":
            self.up.copy_(self.up + total.sum())
        variance = total.pow(2).mean(-1, keepdim=True)
        if self.oddity == "mean is kept":
            self.seen = [variance]
        wide = total * torch.rsqrt(variance + 1e-6)
        if self.oddity == "scaled is read":
            self.up.copy_(self.up + wide.sum())
        if self.oddity == "scaled is looked at through a view that is kept":
            self.seen = [wide[:1]]
        if self.oddity == "sum is written before the weight":
            total.add_(1)
        return total, self.weight * wide

    def turn(self) -> Tensor:
        q, k = self.turned(self.q), self.turned(self.k)
        if self.oddity == "queries are read before the keys are kept":
            self.up.copy_(self.up + q.sum())
        self.keys.index_copy_(2, self.column, k)
        if self.oddity == "keys are read before the values are kept":
            self.up.copy_(self.up + self.keys.sum())
        if self.oddity == "column moves before the values are kept":
            self.column.sub_(1)
        self.values.index_copy_(2, self.column, self.v)
        if self.oddity == "column moves before the values are kept":
            self.column.add_(1)
        if self.oddity == "turned keys are read":
            self.up.copy_(self.up + k.sum())
        return q

    def activate(self) -> Tensor:
        bent = torch.nn.functional.silu(self.gate)
        if self.oddity == "activation is read":
            self.seen = [bent]
        if self.oddity == "gate is written":
            self.gate.add_(1)
            result = bent * self.up
            self.gate.sub_(1)
            return result
        return bent * self.up


def odd(oddity: str) -> Odd:
    torch.manual_seed(3)
    return Odd(oddity)


@pytest.mark.parametrize(
    ("oddity", "lost"),
    [
        ("none", None),
        ("sum is read before the square", "norm"),
        ("mean is kept", "norm"),
        ("scaled is read", "norm"),
        ("scaled is looked at through a view that is kept", "norm"),
        ("sum is written before the weight", "norm"),
        ("queries are read before the keys are kept", "rotary"),
        ("activation is read", "gate"),
        ("gate is written", "gate"),
    ],
)
def test_what_somebody_could_tell_apart_is_left_as_it_is(oddity: str, lost: str | None) -> None:
    places = planned(odd(oddity)).places
    assert places == {kind: 1 for kind in ALL if kind != lost}


@pytest.mark.parametrize(
    "oddity",
    [
        "turned keys are read",
        "keys are read before the values are kept",
        "column moves before the values are kept",
    ],
)
def test_keys_that_do_more_than_go_into_the_cache_are_turned_without_it(oddity: str) -> None:
    plan = planned(odd(oddity))
    kernels = [launch.kernel for _, launch in plan.launches.values()]
    assert kernels == ["square", "scale", "turn", "gate"]
    given = fused(plan.without(Kind.GATE), odd(oddity))
    assert torch.equal(given, odd(oddity)())


def test_a_step_up_to_float32_that_is_kept_stays() -> None:
    class Keeping(DecodeLayer):
        def norm(self) -> tuple[Tensor, Tensor]:
            self.wide = self.x.to(torch.float32)
            scale = torch.rsqrt(self.wide.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.x, self.weight * (self.wide * scale).to(self.x.dtype)

    assert planned(Keeping(torch.float16)).places == {"rotary": 1, "gate": 1}


@pytest.mark.parametrize("looks", [False, True])
def test_a_match_whose_inside_is_looked_at_is_unsound(looks: bool) -> None:
    layer = DecodeLayer()

    def run() -> Tensor:
        bent = torch.nn.functional.silu(layer.gate)
        product = bent * layer.up
        return product + bent if looks else product + 1

    with Listener() as listener:
        run()
    takes = {"gate": Slot(0, 0), "up": Slot(1, 1)}
    match = Match(Kind.GATE, (Launch("gate", (0, 1), takes, {"out": Slot(1)}),))
    assert is_sound(listener.stream(), match) is not looks


def test_other_halves_are_no_rotary_embedding() -> None:
    class Interleaved(DecodeLayer):
        def turned(self, x: Tensor) -> Tensor:
            even, odd = x[..., ::2], x[..., 1::2]
            across = torch.cat((-odd, even), dim=-1)
            return x * self.cos.unsqueeze(1) + across * self.sin.unsqueeze(1)

    assert planned(Interleaved()).places == {"norm": 1, "gate": 1}


def test_two_norms_of_one_sum_share_it() -> None:
    layer = DecodeLayer()

    def run() -> Tensor:
        total = layer.x + layer.added
        normed = []
        for weight in (layer.weight, layer.weight + 1):
            scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)
            normed.append(weight * (total * scale))
        return torch.stack(normed)

    wanted = run()
    plan = planned(run)
    assert plan.places == {"norm": 2}
    assert torch.equal(fused(plan, run), wanted)


def test_a_run_that_calls_something_else_is_given_up() -> None:
    layer = DecodeLayer()
    plan = planned(layer)
    with pytest.raises(Strayed, match=r"call 0 was aten.add.Tensor and now is aten.silu.default"):
        fused(plan, layer.activate)
    with pytest.raises(Strayed, match="it ended after 7 calls"):
        fused(plan, layer.norm)
    with pytest.raises(Strayed, match="no more"):
        fused(plan, lambda: (layer(), layer.norm()))


def test_an_error_inside_leaves_no_mode_behind() -> None:
    plan = planned(DecodeLayer())
    before = torch._C._len_torch_dispatch_stack()
    with pytest.raises(ZeroDivisionError), FusedRun(plan):
        _ = 1 / 0
    assert torch._C._len_torch_dispatch_stack() == before
