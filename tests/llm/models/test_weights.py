"""Weights: checked whole before anything is allocated or changed, then copied by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from llm.models.tiny_folders import write
from ostinato.errors import ResourceError, UsageError, WrongTypeError
from ostinato.llm.models import Decoder, DecoderConfig, build, load_weights, read_config
from ostinato.llm.models.sources import StateSource
from ostinato.llm.models.weights import WeightsLost

CPU = torch.device("cpu")
State = dict[str, torch.Tensor]


def build_llama(folder: Path, **options: Any) -> Decoder:
    return build(read_config(folder), dtype=torch.float32, device=CPU, folder=folder, **options)


def state_of(folder: Path) -> State:
    state: State = {}
    for file in folder.glob("*.safetensors"):
        state |= load_file(file)
    return state


def changed(folder: Path, tmp_path: Path, change: Callable[[State], object]) -> Path:
    """Copy the folder with its tensors changed, as one file."""
    target = shutil.copytree(folder, tmp_path / "changed")
    state = state_of(target)
    change(state)
    for file in (*target.glob("*.safetensors"), target / "model.safetensors.index.json"):
        file.unlink()
    save_file(state, target / "model.safetensors")
    return target


NORM = "model.layers.1.input_layernorm.weight"
K = "model.layers.0.self_attn.k_proj.weight"
BROKEN: list[tuple[Callable[[State], object], str, str]] = [
    (lambda state: state.pop(K), "OST5203", rf"lacks the tensor {K}\n"),
    (lambda state: [state.pop(K), state.pop(NORM)], "OST5203", "and 1 more tensors"),
    (lambda state: state.update({K: torch.zeros(64, 32)}), "OST5204", r"\(64, 32\).*\(32, 64\)"),
    (lambda state: state.update({NORM: torch.ones(64, dtype=torch.int8)}), "OST5205", "I8"),
    (lambda state: state.update({K[:-6] + "bias": torch.ones(32)}), "OST5206", "k_proj.bias"),
]


@pytest.mark.parametrize(("change", "code", "words"), BROKEN)
def test_a_checkpoint_that_does_not_fit_is_refused_before_memory_is_asked_for(
    llama_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[State], object],
    code: str,
    words: str,
) -> None:
    folder = changed(llama_folder, tmp_path, change)
    monkeypatch.setattr(Decoder, "to_empty", lambda *_, **__: pytest.fail("memory was taken"))
    with pytest.raises(UsageError, match=words) as caught:
        build_llama(folder)
    assert caught.value.code == code


def test_a_missing_shard_is_named(llama_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(llama_folder, tmp_path / "broken")
    lost = sorted(folder.glob("model-*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(UsageError, match=lost.name) as caught:
        build_llama(folder)
    assert caught.value.code == "OST2022"


def test_a_model_larger_than_the_memory_is_refused_with_the_numbers(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.llm.models.building.available_bytes", lambda: 1 << 10)
    with pytest.raises(ResourceError, match=r"1\.0 KiB are free") as caught:
        build_llama(llama_folder)
    assert caught.value.code == "OST2025"


@pytest.mark.parametrize(("change", "code", "words"), BROKEN)
def test_a_refused_swap_changes_nothing(
    llama_folder: Path, change: Callable[[State], object], code: str, words: str
) -> None:
    decoder = build_llama(llama_folder)
    state = {name: value + 1 for name, value in state_of(llama_folder).items()}
    change(state)
    before = [weight.clone() for weight in decoder.parameters()]
    words = words.replace("I8", "torch.int8")
    with pytest.raises(UsageError, match=words) as caught:
        load_weights(decoder, state)
    assert caught.value.code == code
    assert all(map(torch.equal, before, decoder.parameters()))


def test_a_swap_lands_in_place_with_the_bits_of_a_fresh_load(
    llama_folder: Path, tmp_path: Path
) -> None:
    other = changed(
        llama_folder, tmp_path, lambda state: [value.mul_(1.5) for value in state.values()]
    )
    decoder, fresh = build_llama(llama_folder), build_llama(other)
    places = [weight.data_ptr() for weight in decoder.parameters()]
    load_weights(decoder, other)
    assert [weight.data_ptr() for weight in decoder.parameters()] == places
    assert all(map(torch.equal, decoder.parameters(), fresh.parameters()))


def test_a_partial_swap_leaves_the_rest(llama_folder: Path) -> None:
    decoder, before = build_llama(llama_folder), build_llama(llama_folder)
    load_weights(decoder, {K: torch.ones(32, 64)}, is_partial=True)
    kept, new = before.destinations(), decoder.destinations()
    assert torch.equal(new[K], torch.ones(32, 64))
    assert all(torch.equal(new[name], kept[name]) for name in kept if name != K)


def test_what_is_no_tensor_is_refused(llama_folder: Path) -> None:
    with pytest.raises(UsageError, match="float under 'x'"):
        load_weights(build_llama(llama_folder), {"x": 1.0})  # type: ignore[dict-item]


class Marked(torch.Tensor):
    """A subclass, as quantised and sharded tensors are."""


def freed(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value.untyped_storage().resize_(0)
    return value


UNCOPIABLE: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "meta": (lambda value: value.to("meta"), "meta device"),
    "sparse": (lambda value: value.to_sparse(), "sparse"),
    "complex": (lambda value: value.to(torch.complex64), "complex64"),
    "a subclass": (lambda value: value.as_subclass(Marked), "Marked"),
    "given back": (freed, "given back"),
}


@pytest.mark.parametrize("kind", UNCOPIABLE)
def test_a_tensor_that_cannot_be_copied_is_refused_before_any_is(
    llama_folder: Path, kind: str
) -> None:
    change, words = UNCOPIABLE[kind]
    decoder = build_llama(llama_folder)
    state = {name: value + 1 for name, value in state_of(llama_folder).items()}
    last = list(state)[-1]
    state[last] = change(state[last])
    before = [weight.clone() for weight in decoder.parameters()]
    with pytest.raises(UsageError, match=words) as caught:
        load_weights(decoder, state)
    assert caught.value.code == "OST5205"
    assert last in str(caught.value)
    assert all(map(torch.equal, before, decoder.parameters()))


@pytest.mark.parametrize("given", [None, 5, [1], {5: torch.zeros(1)}], ids=str)
def test_what_is_neither_a_state_dict_nor_a_folder_is_refused(
    llama_folder: Path, given: Any
) -> None:
    with pytest.raises(WrongTypeError, match=r"got|names a tensor by 5") as caught:
        load_weights(build_llama(llama_folder), given)
    assert caught.value.code == "OST5205"


def test_a_tensor_without_a_place_is_named_as_it_was_given(llama_folder: Path) -> None:
    state = {**state_of(llama_folder), "foo": torch.zeros(1)}
    with pytest.raises(UsageError, match="place for the tensor foo of") as caught:
        load_weights(build_llama(llama_folder), state)
    assert caught.value.code == "OST5206"


def test_copying_that_fails_half_way_says_that_the_weights_are_lost(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = build_llama(llama_folder)
    state = state_of(llama_folder)
    last = list(state)[-1]

    def read(self: StateSource, name: str) -> torch.Tensor:
        if name == last:
            raise OSError("the disk is gone")
        return state[name]

    monkeypatch.setattr(StateSource, "read", read)
    with pytest.raises(WeightsLost, match="OSError: the disk is gone") as caught:
        load_weights(decoder, state)
    assert caught.value.code == "OST5212"


def test_names_without_the_prefix_and_stored_masks_are_understood(tmp_path: Path) -> None:
    theirs = write("gpt2", tmp_path / "gpt2")
    decoder = build_llama(tmp_path / "gpt2")
    bare = {name.removeprefix("transformer."): v for name, v in theirs.state_dict().items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 512, 512)
    bare["h.1.mlp.c_fc.bias"] = torch.full((256,), 7.0)
    load_weights(decoder, bare)
    assert torch.equal(
        decoder.destinations()["transformer.h.1.mlp.c_fc.bias"], torch.full((256,), 7.0)
    )


def test_a_tied_head_may_be_given_twice_but_not_differently(tmp_path: Path) -> None:
    theirs = write("llama-tied-llama3-rope", tmp_path / "tied")
    decoder = build_llama(tmp_path / "tied")
    state = theirs.state_dict()
    assert "lm_head.weight" in state
    load_weights(decoder, state)
    with pytest.raises(UsageError, match="differs from model") as caught:
        load_weights(decoder, {**state, "lm_head.weight": state["lm_head.weight"] + 1})
    assert caught.value.code == "OST5206"


def test_weights_are_turned_into_the_number_type_asked_for(llama_folder: Path) -> None:
    decoder = build(
        read_config(llama_folder), dtype=torch.bfloat16, device=CPU, folder=llama_folder
    )
    expected = state_of(llama_folder)[K].bfloat16()
    assert torch.equal(decoder.destinations()[K], expected)
    assert {weight.dtype for weight in decoder.parameters()} == {torch.bfloat16}
    assert decoder.frequencies.dtype is torch.float32
    assert not decoder.is_invariant


def test_dummy_weights_need_no_folder_and_are_the_same_every_time() -> None:
    config = DecoderConfig.from_dict(
        transformers.LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
            num_attention_heads=2,
        ).to_dict()
    )  # fmt: skip
    one, two = (build(config, dtype=torch.float32, device=CPU, load="dummy") for _ in range(2))
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    weights = one.destinations()
    assert torch.equal(weights["model.norm.weight"], torch.ones(32))
    assert 0.01 < weights["model.embed_tokens.weight"].std() < 0.03


def test_a_model_never_trains(llama_folder: Path) -> None:
    assert not any(weight.requires_grad for weight in build_llama(llama_folder).parameters())
