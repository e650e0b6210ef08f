"""An accelerated model whose recorded step is fused: the same tokens, fewer calls, and a report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from ostinato.errors import UsageError
from ostinato.hf import Answer, accelerate
from ostinato.hf.fusing import compiled_part

kernels = pytest.importorskip("ostinato.hf.fusing.kernels")
Make = Callable[..., Any]
PLAIN = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def nodes(fast: Any) -> list[int]:
    """Calls of the recorded steps: perhaps a prefill, and the decode step."""
    return [graph["nodes"] for graph in fast.report().to_dict()["graphs"]]


@pytest.mark.slow
@pytest.mark.parametrize("fused_kind", ["llama", "qwen3", "mistral-sliding", "gpt2"])
def test_the_tokens_are_those_of_the_model(fused_kind: str, tiny: Make, prompt: Make) -> None:
    model, inputs = tiny(fused_kind), prompt(2, 12)
    wanted = model.generate(**inputs, **PLAIN)
    with accelerate(model, fuse=True) as fast:
        ours = fast.generate(**inputs, **PLAIN)
        assert fast.last.replayed_steps == fast.last.steps == 4
        report = fast.report().to_dict()
    assert torch.equal(ours, wanted)
    if fused_kind == "gpt2":
        assert report["fused"] == {}
        assert report["not_fused"].keys() == {"norm", "rotary", "gate"}
    else:
        assert report["fused"] == {"norm": 9 if fused_kind == "qwen3" else 5, "rotary": 2}
        assert "other bits" in report["not_fused"]["gate"]  # the interpreter's exponential


@pytest.mark.slow
def test_what_is_saved_is_what_the_recording_has_less(tiny: Make, prompt: Make) -> None:
    model, count = tiny(), {}
    for fuse in (False, True):
        with accelerate(model, fuse=fuse) as fast:
            fast.generate(**prompt(), **PLAIN)
            count[fuse], text = nodes(fast)[-1], str(fast.report())
            saved = fast.report().to_dict()["fused_calls_saved"]
    assert "fused           5 x norm, 2 x rotary; 41 calls a step less; not gate: " in text
    assert saved == 5 * 4 + 2 * 11 - 1  # before the first norm there is no sum
    assert count[False] - count[True] == saved


@pytest.mark.parametrize("fuse", [None, False])
def test_on_a_cpu_nothing_is_fused_unless_asked_for(
    fuse: bool | None, tiny: Make, prompt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "start", None)
    with accelerate(tiny(), fuse=fuse) as fast:
        fast.generate(**prompt(), **PLAIN)
        assert fast.last.replayed_steps == 4
        report = fast.report()
    assert report.fusion is None
    assert report.to_dict()["fused"] == {}
    assert "fused" not in str(report)


def test_without_recordings_nothing_is_tried(tiny: Make, prompt: Make) -> None:
    with accelerate(tiny(), backend="eager", fuse=True) as fast:
        fast.generate(**prompt(), **PLAIN)
        assert fast.last.outcome is Answer.EAGER
        assert fast.report().fusion is None


@pytest.mark.parametrize("fuse", [1, "yes", 0])
def test_fuse_is_a_bool_or_none(fuse: Any, tiny: Make) -> None:
    with pytest.raises(UsageError, match="fuse must be True, False or None") as caught:
        accelerate(tiny(), fuse=fuse)
    assert caught.value.code == "OST3002"


@pytest.mark.slow
def test_a_model_that_changes_its_calls_is_listened_to_anew(tiny: Make, prompt: Make) -> None:
    model, inputs = tiny(), prompt()
    model.doubles = False
    model.model.norm.register_forward_hook(lambda _, __, out: out * 2 if model.doubles else None)
    with accelerate(model, fuse=True) as fast:
        fast.generate(**inputs, **PLAIN)
        before = nodes(fast)[-1]
        model.doubles = True
        with pytest.warns(match="doubles"):
            ours = fast.generate(**inputs, **PLAIN)
        assert fast.last.replayed_steps == 4
        assert nodes(fast)[-1] == before + 1
        assert fast.report().fusion.places == {"norm": 5, "rotary": 2}
    assert torch.equal(ours, model.generate(**inputs, **PLAIN))


@pytest.mark.slow
def test_other_threads_meet_the_ordinary_model_meanwhile(
    tiny: Make, prompt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = tiny(), prompt()
    wanted = model(**inputs).logits
    forward = type(model.model.norm).forward
    here, start = threading.local(), kernels.start
    here.name = "recording"
    starters, seen = set(), []

    def other() -> None:
        with torch.no_grad():
            seen.append(model(**inputs).logits)

    def meet(*args: Any) -> None:
        starters.add(getattr(here, "name", "other"))
        if len(seen) < 3:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        start(*args)

    monkeypatch.setattr(kernels, "start", meet)
    with accelerate(model, fuse=True) as fast:
        fast.generate(**inputs, **PLAIN)
        assert fast.report().fusion.places["norm"] == 5
    assert starters == {"recording"}
    assert len(seen) == 3
    assert all(torch.equal(each, wanted) for each in seen)
    assert type(model.model.norm).forward is forward
    assert "forward" not in vars(model.model.norm)


def test_a_mode_of_the_callers_does_not_hear_the_trial(tiny: Make, prompt: Make) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs = tiny(), prompt()
    counted = []
    for fuse in (False, True):
        with accelerate(model, fuse=fuse) as fast:
            with FlopCounterMode(display=False) as counter:
                fast.generate(**inputs, **PLAIN)
            counted.append(counter.get_total_flops())
            assert fast.last.outcome is Answer.EAGER
            assert fast.report().fusion is None
            fast.generate(**inputs, **PLAIN)
    assert counted[0] == counted[1]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.slow
def test_a_model_with_a_compiled_part_is_left_to_the_compiler(tiny: Make, prompt: Make) -> None:
    model, inputs = tiny(), prompt()
    model.model.layers[1].mlp.compile(backend="eager")
    wanted = model.generate(**inputs, **PLAIN)
    with accelerate(model, fuse=True) as fast:
        assert torch.equal(fast.generate(**inputs, **PLAIN), wanted)
        assert fast.last.replayed_steps == 4
        assert "nothing: model.layers.1.mlp is compiled" in str(fast.report())


@pytest.mark.slow
def test_compiled_parts_are_seen_wherever_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubled(x)

    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = torch.compile(nn.functional.silu, backend="eager")

    class Method(nn.Module):
        @torch.compile(backend="eager")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class Disabled(nn.Module):
        @torch.compiler.disable
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    whole = torch.compile(nn.ReLU(), backend="eager")
    assert compiled_part(nn.Sequential(nn.ReLU(), Disabled(), Named())) is None
    for part in (Held(), Method(), whole):
        assert compiled_part(nn.Sequential(nn.ReLU(), part)) == "1"
    monkeypatch.setitem(globals(), "doubled", torch.compile(doubled, backend="eager"))
    assert compiled_part(nn.Sequential(Named())) == "0"
    assert compiled_part(Held()) == "Held"


@pytest.mark.slow
def test_weights_made_in_inference_mode_are_fused_too(prompt: Make) -> None:
    config = LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                         num_attention_heads=4, num_key_value_heads=2, pad_token_id=0)  # fmt: skip
    with torch.inference_mode():
        model = LlamaForCausalLM(config).eval()
        wanted = model.generate(**prompt(), **PLAIN)
        with accelerate(model, fuse=True) as fast:
            assert torch.equal(fast.generate(**prompt(), **PLAIN), wanted)
            assert fast.last.replayed_steps == 4
            assert fast.report().fusion.places == {"norm": 3, "rotary": 1}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind_on_gpu", ["llama", "qwen2", "qwen3", "mistral-sliding"])
def test_on_a_gpu_all_three_are_fused_and_the_tokens_are_the_plain_ones(
    dtype: torch.dtype, kind_on_gpu: str, tiny: Make, prompt: Make
) -> None:
    model, inputs = tiny(kind_on_gpu, "cuda").to(dtype), prompt(2, 12, "cuda")
    tokens = {}
    for fuse in (False, None):
        with accelerate(model, fuse=fuse) as fast:
            tokens[fuse] = fast.generate(**inputs, **PLAIN)
            assert fast.last.replayed_steps == fast.last.steps
            fusion = fast.report().fusion
    assert fusion.refused == {}
    assert fusion.places == {"norm": 9 if kind_on_gpu == "qwen3" else 5, "rotary": 2, "gate": 2}
    assert torch.equal(tokens[None], tokens[False])
