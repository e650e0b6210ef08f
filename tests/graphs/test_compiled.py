"""torch.compile inside and outside: right, or eager with a reason; never stale."""

import shutil
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from ostinato import Buckets
from ostinato.graphs import Outcome, Reason, graphed

pytestmark = [
    pytest.mark.slow,
    # The compiler's own imports warn.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


class Part(nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu() * 2


def _needs(compiler: str, device: torch.device) -> None:
    if compiler == "inductor" and device.type == "cpu" and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    if compiler == "inductor" and " " in sys.prefix:
        pytest.skip("inductor hands the linker paths unquoted, and the environment's has a space")


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
def test_a_compiled_submodule_is_right_or_eager_with_a_reason(
    compiler: str, device: torch.device
) -> None:
    _needs(compiler, device)
    part = Part(device)
    compiled = torch.compile(part, backend=compiler)
    runner = graphed(lambda x: compiled(x) + 1)
    for value in range(6):
        x = torch.full((2, 4), float(value), device=device)
        torch.testing.assert_close(runner(x), part(x) + 1)
    assert runner.last is not None
    if runner.last.outcome is not Outcome.REPLAYED:
        assert runner.last.reason is Reason.COMPILED_INSIDE
    part.linear.weight.fill_(1.0)
    torch.testing.assert_close(runner(x), part(x) + 1)
    part.linear.load_state_dict(
        {"weight": torch.full((4, 4), 2.0, device=device), "bias": torch.ones(4, device=device)},
        assign=True,
    )
    for _ in range(3):
        torch.testing.assert_close(runner(x), part(x) + 1)


def test_a_compiled_module_itself_is_right_or_eager_with_a_reason(device: torch.device) -> None:
    part = Part(device)
    runner = graphed(torch.compile(part, backend="eager"))
    for value in range(5):
        x = torch.full((2, 4), float(value), device=device)
        torch.testing.assert_close(runner(x), part(x))
    assert runner.report().calls == 5


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_a_graphed_callable_may_be_compiled(compiler: str, device: torch.device) -> None:
    _needs(compiler, device)
    runner = graphed(lambda x: x.relu() * 2)

    def outer(x: Tensor) -> Tensor:
        return runner(x) + 1

    compiled = torch.compile(outer, backend=compiler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # dynamo on what it cannot trace
        for value in range(4):
            x = torch.full((3,), float(value), device=device)
            torch.testing.assert_close(compiled(x), x * 2 + 1)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # inductor's own first recording
def test_a_module_compiled_for_reduced_overhead_has_graphs_of_its_own() -> None:
    part = Part(torch.device("cuda"))
    compiled = torch.compile(part, mode="reduce-overhead")
    runner = graphed(lambda x: compiled(x) + 1)
    for value in range(6):
        x = torch.full((2, 4), float(value), device="cuda")
        torch.testing.assert_close(runner(x), part(x) + 1)
    assert runner.last is not None
    if runner.last.outcome is not Outcome.REPLAYED:
        assert runner.last.reason in (Reason.COMPILED_INSIDE, Reason.CAPTURE_ERROR)


@pytest.mark.parametrize("bucketed", [False, True])
def test_a_function_compiled_whole_stays_compiled(bucketed: bool, device: torch.device) -> None:
    compiled = torch.compile(Part(device), backend="eager", fullgraph=True)
    x = torch.ones(3, 4, device=device)
    expected = compiled(x)
    buckets = {"x": Buckets(0, (4,))} if bucketed else None
    runner = graphed(lambda x: compiled(x) + 1, admit_after=1, buckets=buckets)
    for _ in range(3):
        torch.testing.assert_close(runner(x), expected + 1)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED, runner.last
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(compiled(x[:2]), expected[:2])
