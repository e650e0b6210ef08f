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


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        (AttentionShape(4, 2, 72, (0.1,), (None,)), torch.bfloat16, "up to 256, not 72"),
        (AttentionShape(4, 2, 512, (0.1,), (None,)), torch.bfloat16, "up to 256, not 512"),
        (AttentionShape(128, 1, 64, (0.1,), (None,)), torch.bfloat16, "here 128 do"),
        (SHAPE, torch.float64, "not in float64"),
    ],
)
def test_what_the_kernels_are_not_written_for_is_left_to_sdpa_and_said(
    shape: AttentionShape, dtype: torch.dtype, words: str
) -> None:
    backend, choice = choose(shape, device=torch.device("cuda"), dtype=dtype)
    assert isinstance(backend, SdpaAttention)
    assert words in choice.reasons_against["triton"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_no_kernel_runs() -> None:
    pytest.importorskip("triton")
    _, choice = choose(SHAPE, device=torch.device("cuda"), dtype=torch.bfloat16)
    assert choice.name == "sdpa"
    assert "finds no CUDA device" in choice.reasons_against["triton"]


def test_where_triton_is_not_installed_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _, choice = choose(SHAPE, device=torch.device("cuda"), dtype=torch.bfloat16)
    assert choice.reasons_against["triton"] == "the package triton is not installed"


@pytest.mark.gpu
@pytest.mark.parametrize("wanted", ["auto", "triton"])
def test_on_a_gpu_triton_runs_and_only_flashinfer_is_told_off(wanted: str) -> None:
    backend, choice = choose(
        SHAPE, device=torch.device("cuda:0"), dtype=torch.bfloat16, wanted=wanted
    )
    assert backend.name == choice.name == "triton"
    assert not backend.cost_follows_table
    assert set(choice.reasons_against) == {"flashinfer"}


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
