"""Builds a decoder: checks everything that can be checked, then allocates, then fills.

The order matters to who waits: a lost shard, a wrong shape or too little memory is one error after
milliseconds, with nothing allocated, and not one after the first 15 GB have been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from ostinato.checkpoints.memory import available_bytes, require_memory, telling_memory
from ostinato.errors import UsageError
from ostinato.llm.models.gpt2 import Gpt2Decoder
from ostinato.llm.models.layers import LayerNorm, RmsNorm
from ostinato.llm.models.llama import LlamaDecoder
from ostinato.llm.models.ops import PlainOps
from ostinato.llm.models.quantized import QuantizedLinear, quantise_layers
from ostinato.llm.models.weight_bytes import least_bytes
from ostinato.llm.models.weights import check, fill, source_of

if TYPE_CHECKING:
    from ostinato.llm.models.config import DecoderConfig
    from ostinato.llm.models.decoder import Decoder
    from ostinato.llm.models.ops import LayerOps
    from ostinato.llm.models.quantized import Quantization

_CLASSES: Mapping[str, type[Decoder]] = MappingProxyType(
    {
        "llama": LlamaDecoder,
        "mistral": LlamaDecoder,
        "qwen2": LlamaDecoder,
        "qwen3": LlamaDecoder,
        "gpt2": Gpt2Decoder,
    }
)
_DUMMY_DEVIATION = 0.02


def build(
    config: DecoderConfig,
    *,
    dtype: torch.dtype,
    device: torch.device,
    load: Literal["auto", "dummy"] = "auto",
    folder: Path | str | None = None,
    is_invariant: bool | None = None,
    ops: LayerOps | None = None,
    quantize: Quantization = "none",
) -> Decoder:
    """Return a decoder with its weights in memory.

    Args:
        load: "auto" reads `folder`; "dummy" fills in small random numbers, for benchmarks.
        folder: A transformers folder with safetensors files.
        is_invariant: Whether a token's bits must not depend on the tokens computed with it; None:
            on a CPU in float32 they do not, elsewhere they may.
        ops: What is done between products; None: in plain torch.
        quantize: In which codes the layers' matrices are kept.

    Raises:
        UsageError: OST2021 to OST2023, files are missing or corrupt; OST5203 to OST5206, tensors
            are missing, do not fit, or have no place; OST5209, OST5210 and OST5310, a model that
            runs through transformers gives other logits so, cannot be invariant, or quantised.
        ResourceError: OST2025, not enough memory.
    """
    wants_invariant = is_invariant
    if is_invariant is None:
        is_invariant = device.type == "cpu" and dtype == torch.float32
    layer_bytes = dtype.itemsize if quantize == "none" else 1
    _require_room(least_bytes(config, dtype.itemsize, layer_bytes), device)
    with torch.device("meta"):
        decoder = _class_of(config)(config, ops=ops or PlainOps(), is_invariant=is_invariant).to(
            dtype
        )
        quantise_layers(decoder, quantize)
    if wants_invariant and not decoder.is_invariant:
        raise _cannot_be_invariant(config)
    source = None
    if load == "auto":
        assert folder is not None, "load='auto' reads a folder"
        source = decoder.translate(source_of(folder))
        check(decoder, source)
    _require_room(decoder.bytes, device)
    with telling_memory("building the model"):
        decoder.to_empty(device=device)
    decoder.settle()
    if source is None:
        _fill_with_noise(decoder)
        return decoder.eval()
    fill(decoder, source)
    decoder.eval().prove()
    return decoder


def _class_of(config: DecoderConfig) -> type[Decoder]:
    if config.foreign is None:
        return _CLASSES[config.architecture]
    # Only here: the module loads transformers.
    from ostinato.llm.models.any_hf_decoder import AnyHfDecoder

    return AnyHfDecoder


def _cannot_be_invariant(config: DecoderConfig) -> UsageError:
    return UsageError(
        f"{config.architecture} runs on transformers' code, and some of its products give a token "
        "other last bits when other tokens are computed with it",
        code="OST5210",
        remedy="leave deterministic out, or take a model that the engine has its own decoder for",
    )


def _require_room(needed_bytes: int, device: torch.device) -> None:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        require_memory(needed_bytes, free, "the model", str(device))
    else:
        require_memory(needed_bytes, available_bytes(), "the model", "host")


def _fill_with_noise(decoder: Decoder) -> None:
    """Give every weight a value that keeps activations in range; the same ones every time."""
    place = next(decoder.parameters()).device
    generator = torch.Generator(place).manual_seed(0)
    with torch.inference_mode():
        for module in decoder.modules():
            for name, weight in module.named_parameters(recurse=False):
                if isinstance(module, RmsNorm | LayerNorm) or _is_foreign_norm(module):
                    weight.fill_(1.0 if name == "weight" else 0.0)
                elif isinstance(module, QuantizedLinear) and name != "bias":
                    if name == "weight":
                        module.fill_with_noise(_DUMMY_DEVIATION, generator)
                else:
                    weight.normal_(0.0, _DUMMY_DEVIATION, generator=generator)


def _is_foreign_norm(module: nn.Module) -> bool:
    """Tell a norm of transformers by its name: every architecture has a class of its own."""
    return "Norm" in type(module).__name__
