"""update_weights: new values at the old addresses, so that recordings stay valid."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from ostinato.errors import UsageError
from ostinato.graphs import Buckets, Outcome, Reason, graphed


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_new_weights_are_replayed_without_a_recapture(device: torch.device) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device).eval()
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device).eval()
    other[1].running_mean.fill_(5.0)
    runner = graphed(module, admit_after=1)
    x = torch.randn(2, 3, device=device)
    for _ in range(2):
        runner(x)
    runner.update_weights(other.state_dict())
    torch.testing.assert_close(runner(x), other(x))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    assert runner.report().recordings == 1


def test_padding_that_old_weights_hid_is_found_with_the_new_ones(device: torch.device) -> None:
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 4, device=device)
            self.lin.bias.zero_()

        def forward(self, x: Tensor) -> Tensor:
            return self.lin(x).sum(0)

    module = Summed().eval()
    runner = graphed(module, buckets={"x": Buckets(dim=0, sizes=(4,), fill=0)}, admit_after=1)
    xs = [torch.randn(rows, 3, device=device) for rows in (4, 3, 3, 2)]
    for x in xs:
        torch.testing.assert_close(runner(x), module(x))
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    runner.update_weights(module.state_dict() | {"lin.bias": torch.ones(4)})
    for x in xs:
        torch.testing.assert_close(runner(x), module(x))
    assert runner.last.reason is Reason.PADDING_LEAKS


def test_values_are_cast_and_moved(device: torch.device) -> None:
    module = nn.Linear(2, 2, bias=False, device=device)
    runner = graphed(lambda x: module(x), admit_after=1)
    runner.update_weights({"weight": torch.full((2, 2), 3.0, dtype=torch.float64)})
    assert module.weight.dtype is torch.float32
    assert runner(torch.ones(1, 2, device=device)).tolist() == [[6.0, 6.0]]


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"weight": torch.zeros(2, 2)}, "lacks 1 names \\(bias\\)"),
        (
            {"weight": torch.zeros(2, 2), "bias": torch.zeros(2), "odd": torch.zeros(1)},
            "has 1 unknown ones \\(odd\\)",
        ),
        ({"weight": torch.zeros(2, 2), "bias": torch.zeros(3)}, "bias has shape \\[3\\]"),
        ({"weight": torch.zeros(2, 2), "bias": 1.0}, "bias is of type float"),
        ({"weight": torch.zeros(2, 2), "bias": torch.zeros(2, device="meta")}, "no values"),
        ({}, "lacks 2 names \\(weight, bias\\)\n"),
        ({3: torch.zeros(1)}, "lacks 2 names .* has 1 unknown ones \\(3\\)"),
        ({"weight": torch.zeros(2, 2).to_sparse(), "bias": torch.zeros(2)}, "is torch.sparse_coo"),
        ({"weight": torch.zeros(2, 2) * 1j, "bias": torch.zeros(2)}, "is torch.complex64"),
        ([torch.zeros(2, 2)], "takes a state dict, got list"),
        (None, "takes a state dict, got NoneType"),
        (3, "takes a state dict, got int"),
    ],
)
def test_a_state_dict_that_does_not_fit_changes_nothing(
    state: dict[str, Tensor], problem: str, device: torch.device
) -> None:
    module = nn.Linear(2, 2, device=device)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(UsageError, match=problem) as caught:
        graphed(module).update_weights(state)
    assert caught.value.code == "OST1013"
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_module_without_memory_takes_no_weights() -> None:
    with pytest.raises(UsageError, match="no memory in the module") as caught:
        graphed(nn.Linear(2, 2, device="meta")).update_weights(nn.Linear(2, 2).state_dict())
    assert caught.value.code == "OST1013"


class Tied(nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 2, bias=False, device=device)
        self.head = nn.Linear(2, 2, bias=False, device=device)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


def test_tied_weights_may_be_given_once(device: torch.device) -> None:
    module = Tied(device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, 2, device=device)
    runner(x)
    runner.update_weights({"embed.weight": torch.eye(2)})
    assert runner(x).tolist() == [[1.0, 1.0]]
    assert module.head.weight is module.embed.weight
    runner.update_weights({"embed.weight": torch.eye(2) * 2, "head.weight": torch.eye(2) * 2})
    assert runner(x).tolist() == [[4.0, 4.0]]


def test_tied_weights_that_differ_are_refused(device: torch.device) -> None:
    module = Tied(device)
    before = module.embed.weight.clone()
    with pytest.raises(UsageError, match="tied"):
        graphed(module).update_weights(
            {"embed.weight": torch.eye(2), "head.weight": torch.ones(2, 2)}
        )
    assert torch.equal(module.embed.weight, before)


def test_weights_that_trade_places_do_so(device: torch.device) -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).to(device)
    first, second = module[0].weight.clone(), module[1].weight.clone()
    graphed(module).update_weights({"0.weight": module[1].weight, "1.weight": module[0].weight})
    assert torch.equal(module[0].weight, second)
    assert torch.equal(module[1].weight, first)


@pytest.mark.parametrize("count", [0, 2])
def test_the_callable_must_reach_exactly_one_module(count: int) -> None:
    modules = [nn.Linear(1, 1) for _ in range(count)]
    with pytest.raises(UsageError, match=f"it reaches {count}") as caught:
        graphed(lambda x: [m(x) for m in modules]).update_weights({})
    assert caught.value.code == "OST1014"


def test_no_replay_sees_half_of_an_update(device: torch.device) -> None:
    module = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(6))).to(device)
    states = [{name: torch.full((1, 1), by) for name in module.state_dict()} for by in (1.0, 2.0)]
    runner = graphed(module, admit_after=1)
    runner.update_weights(states[0])
    x = torch.ones(1, 1, device=device)
    runner(x)
    found: set[float] = set()
    stop = threading.Event()

    def call() -> None:
        with torch.no_grad():
            while not stop.is_set():
                found.add(runner(x).item())

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        runner.update_weights(states[turn % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert found <= {1.0, 64.0}
