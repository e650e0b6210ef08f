"""What is added to a module, or changed about a function, after it was recorded is noticed."""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import OstinatoWarning, Outcome, Reason, Runner, graphed


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


class Open(nn.Module):
    """Uses whatever it has."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = nn.Sequential(nn.ReLU())
        self.series = nn.ModuleList([nn.ReLU()])
        self.named = nn.ModuleDict({"first": nn.ReLU()})
        self.numbers = nn.ParameterList([nn.Parameter(torch.ones(2))])

    def forward(self, x: Tensor) -> Tensor:
        x = self.chain(x)
        for part in (*self.series, *self.named.values(), *self.children()):
            if isinstance(part, Doubles | nn.ReLU):
                x = part(x)
        for number in (*self.numbers, *self.parameters(recurse=False)):
            x = x + number
        for buffer in self.buffers(recurse=False):
            x = x + buffer
        return x


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.full((2,), 5.0))


ADDITIONS: dict[str, Callable[[Open], object]] = {
    "Sequential.append": lambda m: m.chain.append(Doubles()),
    "ModuleList.append": lambda m: m.series.append(Doubles()),
    "ModuleDict entry": lambda m: m.named.update({"second": Doubles()}),
    "ParameterList.append": lambda m: m.numbers.append(parameter()),
    "add_module": lambda m: m.add_module("late", Doubles()),
    "register_parameter": lambda m: m.register_parameter("late", parameter()),
    "register_buffer": lambda m: m.register_buffer("late", torch.full((2,), 5.0)),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_what_is_added_to_a_module_is_noticed(name: str, device: torch.device) -> None:
    module = Open().to(device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        before = runner(x)
    ADDITIONS[name](module)
    module.to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)  # a ParameterList counts in an attribute
        after = runner(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, module(x))
    assert runner.last is not None
    reasons = {Reason.WEIGHTS_MOVED}
    if name.startswith("ParameterList"):
        reasons.add(Reason.ATTRIBUTE_CHANGED)
    assert (runner.last.outcome, runner.last.reason in reasons) == (Outcome.RECORDED, True)


class Net:
    def by(self) -> float:
        return 2.0

    def run(self, x: Tensor) -> Tensor:
        return x * self.by()


def _function() -> Any:
    def scaled(x: Tensor, by: float = 2.0) -> Tensor:
        times: float = scaled.times  # type: ignore[attr-defined]
        return x * by * times

    scaled.times = 1.0  # type: ignore[attr-defined]
    return scaled


def _other(x: Tensor, by: float = 2.0) -> Tensor:
    return x * 7.0


@pytest.mark.parametrize("what", ["defaults", "attribute", "method"])
def test_what_a_function_is_made_of_is_watched(
    what: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outer(x: Tensor) -> Tensor:
        return net.run(x) if what == "method" else inner(x)

    net, inner = Net(), _function()
    runner = graphed(outer, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        assert runner(x).tolist() == [2.0, 2.0]
    if what == "defaults":
        inner.__defaults__ = (7.0,)
    elif what == "attribute":
        inner.times = 3.5
    else:
        monkeypatch.setattr(Net, "by", lambda self: 7.0)
    with pytest.warns(OstinatoWarning, match="made anew"):
        assert runner(x).tolist() == [7.0, 7.0]
    assert runner(x).tolist() == [7.0, 7.0]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_code_exchanged_in_place_is_noticed(device: torch.device) -> None:
    def step(x: Tensor, by: float = 2.0) -> Tensor:
        return x * 2.0

    runner = graphed(step, admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        assert runner(x).tolist() == [2.0, 2.0]
    step.__code__ = _other.__code__
    with pytest.warns(OstinatoWarning, match="made anew"):
        assert runner(x).tolist() == [7.0, 7.0]


def test_a_hook_of_all_modules_exchanged_for_another_is_noticed(device: torch.device) -> None:
    module = Doubles()
    runner = graphed(module, admit_after=1)
    x = torch.ones(2, device=device)
    for by in (3.0, 5.0):
        handle = nn.modules.module.register_module_forward_hook(
            lambda module, args, out, by=by: out * by if isinstance(module, Doubles) else None
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OstinatoWarning)
                assert [runner(x)[0].item() for _ in range(2)] == [2 * by, 2 * by]
        finally:
            handle.remove()


def _by_keyword(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


def test_an_entry_of_the_keywords_of_a_partial_is_watched(device: torch.device) -> None:
    part = functools.partial(_by_keyword, by=2.0)
    g: Runner[[Tensor], Tensor] = graphed(part, admit_after=1)
    x = torch.ones(1, device=device)
    assert [g(x).item() for _ in range(2)] == [2.0, 2.0]
    part.keywords["by"] = 7.0
    with pytest.warns(OstinatoWarning, match=r"keywords\['by'\] changed from 2.0 to 7.0"):
        assert g(x).item() == 7.0


def test_an_entry_of_the_keyword_defaults_of_a_function_is_watched(device: torch.device) -> None:
    def scaled(x: Tensor, *, by: float = 2.0) -> Tensor:
        return x * by

    g: Runner[[Tensor], Tensor] = graphed(scaled, admit_after=1)
    x = torch.ones(1, device=device)
    assert [g(x).item() for _ in range(2)] == [2.0, 2.0]
    defaults = scaled.__kwdefaults__
    assert defaults is not None
    defaults["by"] = 9.0
    with pytest.warns(OstinatoWarning, match="by"):
        assert g(x).item() == 9.0


class Descriptor:
    """Cannot be asked of the class."""

    def __get__(self, owner: Any, kind: type | None = None) -> float:
        return float(owner.values[0])


class Described(nn.Module):
    factor = Descriptor()

    def __init__(self) -> None:
        super().__init__()
        self.values = [2]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_a_descriptor_that_fails_on_the_class_is_left_alone(device: torch.device) -> None:
    g = graphed(Described(), admit_after=1)
    for _ in range(3):
        assert g(torch.ones(1, device=device)).item() == 2.0
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
