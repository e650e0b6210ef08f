"""Every family says by which way its layers are computed, and why not by the faster one."""

from __future__ import annotations

import pytest
import torch

from llm.models.conftest import Family
from ostinato.llm.models import build, read_config
from ostinato.llm.models.llama import LlamaDecoder
from ostinato.llm.models.paths import DecodePath, reason_against_fused

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def path_of(family: Family) -> DecodePath:
    config = read_config(family.folder)
    return build(config, dtype=torch.bfloat16, device=CPU, load="dummy").decode_path


def test_families_of_the_engine_are_fused_wherever_a_gpu_can(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    pytest.importorskip("triton")
    config = read_config(family.folder)
    decoder = build(config, dtype=torch.bfloat16, device=CPU, load="dummy")
    if isinstance(decoder, LlamaDecoder):
        assert decoder.decode_path == DecodePath(
            "composable", "the fused kernels need a CUDA device, and the model is on cpu"
        )
        assert reason_against_fused(config, GPU, torch.bfloat16, is_invariant=False) is None
    else:
        assert decoder.decode_path == DecodePath("composable", "gpt2 has no fused layers")


def test_families_of_transformers_say_why_they_have_no_decoder_of_their_own(
    foreign: Family,
) -> None:
    config = read_config(foreign.folder)
    assert config.foreign is not None
    assert config.foreign.reason
    assert path_of(foreign) == DecodePath(
        "composable", f"{config.architecture} has no fused layers: {config.foreign.reason}"
    )
