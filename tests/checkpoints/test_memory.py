"""Memory: asked before a load, and a shortage told as one."""

import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from ostinato.checkpoints import telling_memory
from ostinato.checkpoints.memory import available_bytes, group_bytes, require_memory
from ostinato.errors import ResourceError


def write_group(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text("700\n")
    (folder / "memory.stat").write_text("anon 500\ninactive_file 150\nactive_file 50\n")
    return folder


def test_what_is_free_is_at_most_what_the_machine_has() -> None:
    assert 0 < available_bytes() <= psutil.virtual_memory().total


def test_a_process_limit_counts() -> None:
    program = (
        "import resource, psutil\n"
        "from ostinato.checkpoints.memory import available_bytes\n"
        "limit = psutil.Process().memory_info().vms + (64 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "print(available_bytes())\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert 32 << 20 < int(shown.stdout) <= 64 << 20
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_a_container_limit_counts_and_its_file_cache_is_free(tmp_path: Path) -> None:
    assert group_bytes(write_group(tmp_path, "1000")) == 1000 - 700 + 150


def test_no_container_limit_is_no_answer(tmp_path: Path) -> None:
    assert group_bytes(write_group(tmp_path, "max")) is None
    assert group_bytes(tmp_path / "absent") is None


def test_enough_memory_is_enough() -> None:
    require_memory(100, 100, "the model", "host")


def test_too_little_memory_is_told_with_both_numbers() -> None:
    with pytest.raises(ResourceError) as caught:
        require_memory(3 << 30, 1 << 30, "the model m", "host")
    assert caught.value.code == "OST2025"
    assert "the model m needs about 3.0 GiB of host memory, and 1.0 GiB are free" in str(
        caught.value
    )


def test_torch_running_out_of_host_memory_becomes_that_error() -> None:
    with (
        pytest.raises(ResourceError, match="while answering: ") as caught,
        telling_memory("answering"),
    ):
        torch.empty(1 << 60, dtype=torch.uint8)
    assert caught.value.code == "OST2025"


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), telling_memory("answering"):
        torch.ones(2, 3) @ torch.ones(2, 3)
