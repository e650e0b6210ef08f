"""Settings and modes round a call: a recording serves the setting it was made in, and no mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from graphs.replaying import check_replay
from ostinato.graphs import Outcome, Reason, Runner, graphed
from ostinato.graphs.ambient import mode_around, read_mode


@contextmanager
def _set(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _deterministic_algorithms() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "grad": lambda: torch.no_grad(),
    "inference": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu"),
    "autocast-dtype": lambda: torch.autocast("cpu", dtype=torch.float16),
    "default-device": lambda: torch.device("meta"),
    "default-dtype": lambda: _default_dtype(torch.float64),
    "deterministic": _deterministic_algorithms,
    "flash attention": lambda: sdpa_kernel(
        [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    ),
    "efficient attention": lambda: sdpa_kernel(
        [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    ),
    "attention by cudnn": lambda: sdpa_kernel(
        [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    ),
    "plain attention": lambda: sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    ),
    "sums in half precision": lambda: _set(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
}
CUDNN = {
    "off": lambda: torch.backends.cudnn.flags(enabled=False),
    "benchmark": lambda: torch.backends.cudnn.flags(benchmark=True),
    "deterministic": lambda: torch.backends.cudnn.flags(deterministic=True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_change_what_a_run_computes_are_read(name: str) -> None:
    before = read_mode()
    with SETTINGS[name]():
        inside = read_mode()
    assert inside != before
    assert read_mode() == before


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="torch was built without CUDA")
@pytest.mark.parametrize("name", CUDNN)
def test_settings_of_cudnn_are_read(name: str) -> None:
    before = read_mode()
    with CUDNN[name]():
        assert read_mode() != before
    assert read_mode() == before


def test_a_precision_set_by_its_newer_name_is_read(no_traces_of_precision: None) -> None:
    before = read_mode()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert read_mode() != before
    runner = graphed(torch.relu, admit_after=1)
    for value in (-1.0, 2.0):
        assert torch.equal(runner(torch.tensor([value])), torch.tensor([max(value, 0.0)]))


@pytest.fixture
def no_traces_of_precision() -> Iterator[None]:
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")


def _attend(x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x)


def _recorded(fn: Callable[..., Any], *args: Any) -> Runner[..., Any]:
    runner = graphed(fn, admit_after=1)
    with torch.no_grad():
        for _ in range(2):  # the second call leaves a memo
            runner(*args)
        check_replay(runner, *args)
    return runner


def test_a_recording_serves_only_the_kernels_of_attention_that_were_allowed_when_it_was_made() -> (
    None
):
    x = torch.randn(1, 2, 4, 8)
    runner = _recorded(_attend, x)
    with torch.no_grad():
        with sdpa_kernel(SDPBackend.MATH):
            runner(x)
            assert runner.last is not None
            assert runner.last.outcome is Outcome.RECORDED
            check_replay(runner, x)
        check_replay(runner, x)
    assert len(runner.report().graphs) == 2


class CountsCalls(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made * 2 if func is torch.add else made


def _add_one(x: Tensor) -> Tensor:
    return torch.add(x, 1)


def _assert_eager_for_the_mode(runner: Runner[..., Any]) -> None:
    assert runner.last is not None
    assert (runner.last.outcome, runner.last.reason) == (Outcome.EAGER, Reason.MODE_AROUND)


def test_a_dispatch_mode_sees_the_operations_of_a_recorded_function() -> None:
    x = torch.ones(2)
    runner = _recorded(_add_one, x)
    with torch.no_grad(), CountsCalls() as mode:
        runner(x)
    assert mode.count == 1
    _assert_eager_for_the_mode(runner)


def test_a_dispatch_mode_sees_the_operations_of_a_function_without_arguments() -> None:
    held = torch.ones(2)
    runner = _recorded(lambda: held + 1)
    with torch.no_grad(), CountsCalls() as mode:
        runner()
    assert mode.count == 1


def test_a_function_mode_changes_what_a_recorded_function_returns() -> None:
    x = torch.ones(2)
    runner = _recorded(_add_one, x)
    with torch.no_grad(), Doubles():
        assert torch.equal(runner(x), torch.full((2,), 4.0))
    _assert_eager_for_the_mode(runner)


def test_a_function_mode_is_not_taken_for_that_of_a_default_device() -> None:
    x = torch.ones(2)
    with torch.device("cpu"):
        runner = _recorded(_add_one, x)
    with torch.no_grad(), Doubles():
        assert torch.equal(runner(x), torch.full((2,), 4.0))


def test_vmap_over_a_recorded_function_maps_it() -> None:
    held = torch.arange(3.0)
    runner = _recorded(lambda x: x + held, torch.ones(3))
    xs = torch.randn(2, 3)
    assert torch.equal(torch.func.vmap(runner)(xs), xs + held)


def test_a_call_on_plain_tensors_inside_vmap_runs_eagerly() -> None:
    x = torch.ones(2)
    runner = _recorded(_add_one, x)
    torch.func.vmap(lambda y: y + runner(x).sum())(torch.ones(3))
    _assert_eager_for_the_mode(runner)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own
def test_a_tangent_comes_through_a_recorded_function() -> None:
    x = torch.ones(2)
    runner = _recorded(torch.sin, x)
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(2))
        tangent = forward_ad.unpack_dual(runner(dual)).tangent
    _assert_eager_for_the_mode(runner)
    assert tangent is not None
    torch.testing.assert_close(tangent, torch.cos(x))


def test_the_mode_of_a_default_device_is_no_obstacle() -> None:
    with torch.device("cpu"):
        assert mode_around() is None
        _recorded(_add_one, torch.ones(2))
