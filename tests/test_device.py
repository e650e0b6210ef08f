"""Device: the facts at the head of a benchmark are this machine's."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch

from ostinato import device


def test_a_cpu_run_says_which_cpu_and_how_many_cores_and_names_no_gpu() -> None:
    machine = device.describe("cpu")
    assert machine.cpu
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.threads == torch.get_num_threads()
    assert machine.memory_bytes > 2**28
    assert machine.torch == version("torch")
    assert machine.accelerator is None


def test_the_facts_are_plain_values_that_json_can_hold() -> None:
    facts = device.describe("cpu").to_dict()
    assert json.loads(json.dumps(facts)) == facts


def test_a_machine_introduces_itself_in_one_line() -> None:
    machine = device.describe("cpu")
    assert str(machine) == (
        f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, Python {machine.python}"
    )


@pytest.mark.gpu
def test_a_gpu_run_says_which_gpu_and_driver() -> None:
    gpu = device.describe().accelerator
    assert gpu is not None
    assert gpu.name == torch.cuda.get_device_name()
    assert gpu.sm_count > 0
    assert gpu.memory_bytes > 2**30
    assert gpu.driver is not None


def test_the_default_device_is_the_cpu_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.default_device() == torch.device("cpu")


def test_importing_the_module_does_not_import_torch() -> None:
    program = "import sys, ostinato.device; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
