"""Choose: the backend that runs is named, and so is why no faster one does."""

from __future__ import annotations

import pytest
import torch

from ostinato.errors import UsageError
from ostinato.llm.attention import AttentionShape, SdpaAttention, choose

CPU = torch.device("cpu")
SHAPE = AttentionShape(4, 2, 16, (0.25,), (None,))


def test_on_a_cpu_sdpa_runs_and_the_faster_ones_are_told_off_for_the_device() -> None:
    _, choice = choose(SHAPE, device=CPU, dtype=torch.float32)
    assert choice.name == "sdpa"
    assert set(choice.reasons_against) == {"triton", "flashinfer"}
    assert all("on cpu" in reason for reason in choice.reasons_against.values())


def test_on_a_gpu_the_reason_is_another_one() -> None:
    _, choice = choose(SHAPE, device=torch.device("cuda"), dtype=torch.bfloat16)
    assert all("on cpu" not in reason for reason in choice.reasons_against.values())


def test_a_backend_asked_for_by_name_is_the_only_reason() -> None:
    _, choice = choose(SHAPE, device=CPU, dtype=torch.float32, wanted="sdpa")
    assert set(choice.reasons_against.values()) == {"sdpa was asked for"}


@pytest.mark.parametrize(("dtype", "in_blocks"), [(torch.float32, True), (torch.bfloat16, False)])
def test_float32_on_a_cpu_is_computed_so_that_company_does_not_matter(
    dtype: torch.dtype, in_blocks: bool
) -> None:
    backend, _ = choose(SHAPE, device=CPU, dtype=dtype)
    assert isinstance(backend, SdpaAttention)
    assert backend.in_blocks is in_blocks


@pytest.mark.parametrize(
    ("wanted", "words"), [("fast", "no attention backend 'fast'"), ("triton", "CUDA device")]
)
def test_a_backend_that_is_unknown_or_cannot_run_is_refused(wanted: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        choose(SHAPE, device=CPU, dtype=torch.float32, wanted=wanted)
    assert caught.value.code == "OST5211"
