"""Placement: what "auto" means, and what is refused."""

import pytest
import torch

from ostinato.checkpoints import choose_device
from ostinato.checkpoints.placement import choose_dtype
from ostinato.errors import UsageError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_takes_a_gpu_if_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_the_cpu_is_always_there() -> None:
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda:99", "the device 'cuda:99' is not there: torch sees"),
        ("mps", "not on 'mps'"),
        ("toaster", "'toaster' is not a device"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        choose_device(device)
    assert caught.value.code == "OST2029"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_machine_without_a_gpu_says_so() -> None:
    with pytest.raises(UsageError, match="torch sees 0 GPUs"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("device", "config", "chosen"),
    [
        (CPU, {"dtype": "bfloat16"}, torch.float32),
        (CUDA, {"dtype": "bfloat16"}, torch.bfloat16),
        (CUDA, {"torch_dtype": "float16"}, torch.float16),
        (CUDA, {"torch_dtype": "torch.float32"}, torch.float32),
        (CUDA, {"dtype": "float8_e4m3fn"}, None),
        (CUDA, {}, None),
    ],
)
def test_auto_is_float32_on_a_cpu_and_as_stored_on_a_gpu(
    device: torch.device, config: dict[str, str], chosen: torch.dtype | None
) -> None:
    assert choose_dtype("auto", device, config) == chosen


def test_a_type_that_is_asked_for_is_taken() -> None:
    assert choose_dtype("bfloat16", CPU, {"dtype": "float32"}) == torch.bfloat16


def test_a_type_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="'int8' is not a number type") as caught:
        choose_dtype("int8", CPU, {})
    assert caught.value.code == "OST2029"
