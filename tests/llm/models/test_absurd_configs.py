"""Models that cannot be: refused at once and by name, not after minutes of building layers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.llm.config import EngineConfig
from ostinato.llm.loading import load
from ostinato.llm.models import DecoderConfig
from ostinato.llm.models import building as building_module

LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 128, "n_inner": 64,
}  # fmt: skip
NEOX: dict[str, Any] = {
    "model_type": "gpt_neox", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128,
}  # fmt: skip
COUNTS = (10**30, 2**63, 10**10, 0, -1, math.nan, math.inf, 2.5, True, "x", [], {})
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building_module, "available_bytes", lambda: 1 << 30)
    monkeypatch.setattr(building_module, "_class_of", lambda _: pytest.fail("layers were built"))


def loaded(config: dict[str, Any]) -> None:
    model = DecoderConfig.from_dict(config)
    options = {"load": "dummy", "device": "cpu", "max_batch": 2, "kv_memory": "1MiB"}
    load(EngineConfig.read({**options, "model": model}))


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(OstinatoError) as caught:
        loaded(config)
    assert caught.value.remedy
    return f"{caught.value.code}: {caught.value.args[0]}"


@pytest.mark.parametrize("value", COUNTS, ids=repr)
@pytest.mark.parametrize(
    ("family", "key"),
    [
        *(("llama", key) for key in LLAMA if key not in ("model_type", "rope_theta")),
        *(("gpt2", key) for key in GPT2 if key != "model_type"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(family: str, key: str, value: Any) -> None:
    config = {**(LLAMA if family == "llama" else GPT2), key: value}
    if key == "rms_norm_eps" and value in (2.5, 10**10, 2**63, 10**30):
        assert refusal(config).endswith("and can be at most 1")
    else:
        assert key in refusal(config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers is 10000000, and at most 1024 can be"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_attention_heads 5"),
        ({"num_key_value_heads": 3}, "4 attention heads are not a multiple of 3 key-value heads"),
        ({"head_dim": 7}, "its heads have 7 numbers"),
        ({"hidden_size": 20, "num_attention_heads": 4}, "its heads have 5 numbers"),
        ({"rope_theta": 0}, "rope_theta is 0, not a positive number"),
        ({"rope_theta": 1e-300}, "rope_theta is 1e-300, and can be at least 1"),
        ({"rope_theta": math.inf}, "rope_theta is inf, not a positive number"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"eos_token_id": True}, "eos_token_id is True"),
    ],
)
def test_values_that_do_not_belong_together_are_refused(change: dict[str, Any], words: str) -> None:
    said = refusal({**LLAMA, **change})
    assert said.startswith("OST5202")
    assert words in said


@pytest.mark.parametrize("key", [key for key in (*LLAMA,) if not key.startswith(("rope", "rms"))])
def test_a_config_without_a_size_is_refused_by_its_name(key: str) -> None:
    config = {name: value for name, value in LLAMA.items() if name != key}
    if key == "num_key_value_heads":  # as many as there are heads
        assert DecoderConfig.from_dict(config).kv_heads == 4
        return
    said = refusal(config)
    assert key in said or (key == "model_type" and said.startswith("OST5201"))


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 10**9, "num_attention_heads": 10**9 // 64, "head_dim": 64},
        {"intermediate_size": 10**9},
        {"intermediate_size": 2**31 - 1, "num_hidden_layers": 1024},
    ],
    ids=str,
)
def test_a_model_far_too_large_is_refused_before_its_layers_are_built(
    change: dict[str, Any],
) -> None:
    with pytest.raises((ResourceError, UsageError)) as caught:
        loaded({**LLAMA, "num_key_value_heads": None, **change})
    assert caught.value.code in ("OST2025", "OST5033")


def test_a_vocabulary_too_large_to_draw_from_is_refused_before_its_layers_are_built() -> None:
    assert refusal({**LLAMA, "vocab_size": 10**6}).startswith("OST5022: the vocabulary has 1000000")


@pytest.mark.parametrize("value", [10**30, 2**63, 0, -1])
@pytest.mark.parametrize("key", [*SIZES, "num_attention_heads", "max_position_embeddings"])
def test_a_foreign_model_s_sizes_are_read_before_transformers_builds_it(
    key: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(
        "ostinato.llm.models.any_hf.construct", lambda *_, **__: pytest.fail("it was built")
    )
    said = refusal({**NEOX, key: value})
    assert said.startswith("OST5202")
    assert key in said or "transformers does not take it" in said  # some it looks at itself


def test_the_bytes_told_in_advance_are_those_of_the_matrices() -> None:
    import torch

    from ostinato.llm.models.gpt2 import Gpt2Decoder
    from ostinato.llm.models.llama import LlamaDecoder
    from ostinato.llm.models.ops import PlainOps
    from ostinato.llm.models.weight_bytes import least_bytes

    for values, made in ((LLAMA, LlamaDecoder), (GPT2, Gpt2Decoder)):
        config = DecoderConfig.from_dict(values)
        decoder = made(config, ops=PlainOps(), is_invariant=False).to(torch.float16)
        matrices = [each for each in decoder.parameters() if each.dim() > 1]
        assert least_bytes(config, 2, 2) == sum(each.nbytes for each in matrices)
        assert least_bytes(config, 2, 1) < least_bytes(config, 2, 2) < decoder.bytes
