"""What a recording froze and somebody replaces is noticed before the next replay."""

import dataclasses
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import OstinatoWarning, Outcome, Reason, graphed
from ostinato.graphs import watch as watch_module
from ostinato.graphs.watch import Addresses, PlacesInPython, Watch


class Scale(nn.Module):
    """y = x * weight + shift, with a sub-module's forward underneath."""

    def __init__(self, by: float, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(by, device=device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


GLOBAL: Any = None


def through_a_global(x: Tensor) -> Tensor:
    return GLOBAL(x)


def helper(x: Tensor) -> Tensor:
    return through_a_global(x)


@dataclasses.dataclass
class Holder:
    part: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    part: Any


class CallableObject:
    def __init__(self, part: Any) -> None:
        self.part = part

    def __call__(self, x: Tensor) -> Tensor:
        return self.part(x)

    def method(self, x: Tensor) -> Tensor:
        return self.part(x)


def _global(module: Any) -> Callable[[Tensor], Tensor]:
    global GLOBAL
    GLOBAL = module
    return helper


def _nested(module: Any) -> Callable[[Tensor], Tensor]:
    def outer(x: Tensor) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            return module(x)

        return inner(x)

    return outer


HOLDERS: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
    "itself": lambda m: m,
    "lambda": lambda m: lambda x: m(x),
    "nested function": _nested,
    "global": _global,
    "default": lambda m: lambda x, m=m: m(x),
    "keyword default": lambda m: lambda x, *, m=m: m(x),
    "partial": lambda m: functools.partial(lambda m, x: m(x), m),
    "list": lambda m: (lambda parts: lambda x: parts[0](x))([m]),
    "tuple": lambda m: (lambda parts: lambda x: parts[0](x))((m,)),
    "dict": lambda m: (lambda parts: lambda x: parts["a"](x))({"a": m}),
    "dataclass": lambda m: (lambda held: lambda x: held.part(x))(Holder(m)),
    "slots": lambda m: (lambda held: lambda x: held.part(x))(Slotted(m)),
    "namespace": lambda m: (lambda held: lambda x: held.part(x))(types.SimpleNamespace(part=m)),
    "bound method": lambda m: CallableObject(m).method,
    "callable object": CallableObject,
    "bound forward": lambda m: m.forward,
    "no_grad wrapper": lambda m: torch.no_grad()(lambda x: m(x)),
    "another runner": lambda m: (lambda inner: lambda x: inner(x))(graphed(m)),
    "parent module": lambda m: nn.Sequential(m),
}


def _assign(module: Scale, by: float) -> None:
    module.load_state_dict({"weight": torch.full_like(module.weight, by)}, assign=True)


def _data(module: Scale, by: float) -> None:
    module.weight.data = torch.full_like(module.weight, by)


def _setattr(module: Scale, by: float) -> None:
    module.weight = nn.Parameter(torch.full_like(module.weight, by), requires_grad=False)


def _in_place(module: Scale, by: float) -> None:
    with torch.no_grad():
        module.weight.fill_(by)


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("move", [_assign, _data, _setattr])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_replaced_weight_is_noticed_wherever_its_module_is_held(
    holder: str, move: Callable[[Scale, float], None], device: torch.device, no_grad: None
) -> None:
    module = Scale(2.0, device)
    runner = graphed(HOLDERS[holder](module), admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        assert runner(x).tolist() == [2.0, 2.0]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    move(module, 5.0)
    assert runner(x).tolist() == [5.0, 5.0]
    assert (runner.last.outcome, runner.last.reason) == (Outcome.RECORDED, Reason.WEIGHTS_MOVED)
    assert runner(x).tolist() == [5.0, 5.0]
    assert runner.last.outcome is Outcome.REPLAYED
    assert runner.report().recaptures == 1


@pytest.mark.parametrize("holder", HOLDERS)
def test_an_update_in_place_is_simply_seen(
    holder: str, device: torch.device, no_grad: None
) -> None:
    module = Scale(2.0, device)
    runner = graphed(HOLDERS[holder](module), admit_after=1)
    x = torch.ones(2, device=device)
    runner(x)
    _in_place(module, 5.0)
    assert runner(x).tolist() == [5.0, 5.0]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_moving_a_module_is_noticed(device: torch.device, no_grad: None) -> None:
    module = nn.Linear(2, 2, device=device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, 2, device=device)
    runner(x)
    runner(x)
    module.to(torch.float64)
    y = runner(x.double())
    assert y.dtype is torch.float64
    module.to(torch.float32)
    torch.testing.assert_close(runner(x), module(x))
    assert runner.last is not None
    assert runner.last.reason in (Reason.WEIGHTS_MOVED, Reason.NOT_ADMITTED_YET)


class Adapted(nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.adapter = Scale(2.0, device)

    def forward(self, x: Tensor) -> Tensor:
        return self.adapter(x) + 1


def test_an_adapter_that_is_swapped_is_noticed(device: torch.device, no_grad: None) -> None:
    module = Adapted(device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, device=device)
    for by in (2.0, 3.0):
        module.adapter = Scale(by, device)
        assert runner(x).tolist() == [by + 1]
        assert runner(x).tolist() == [by + 1]
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


class Derived(nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(2, device=device), requires_grad=False)
        self.rebuild()

    def rebuild(self) -> None:
        self.turned = self.weight.t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.turned


def test_a_derived_weight_that_is_rebuilt_is_noticed(device: torch.device, no_grad: None) -> None:
    module = Derived(device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, 2, device=device)
    runner(x)
    runner(x)
    module.load_state_dict({"weight": torch.full((2, 2), 3.0, device=device)}, assign=True)
    module.rebuild()
    assert runner(x).tolist() == [[6.0, 6.0]]


# Hooks and patches.


def test_a_hook_that_comes_and_goes_is_seen(device: torch.device, no_grad: None) -> None:
    module = Adapted(device)
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, device=device)
    assert [runner(x).item() for _ in range(2)] == [3.0, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)
        handle = module.adapter.register_forward_hook(lambda m, args, out: out * 10)
        assert [runner(x).item() for _ in range(2)] == [21.0, 21.0]
        handle.remove()
        module.adapter.register_forward_hook(lambda m, args, out: out * 100)  # as many as before
        assert [runner(x).item() for _ in range(2)] == [201.0, 201.0]
        module.adapter._forward_hooks.clear()
        everywhere = nn.modules.module.register_module_forward_hook(
            lambda m, args, out: out + 5 if isinstance(m, Scale) else None
        )
        try:
            assert runner(x).item() == 8.0
        finally:
            everywhere.remove()
        assert runner(x).item() == 3.0


@pytest.mark.parametrize("where", ["instance", "deep instance", "class"])
def test_a_forward_that_is_patched_is_seen(
    where: str, device: torch.device, no_grad: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = nn.Sequential(nn.Sequential(nn.Sequential(Scale(2.0, device))))
    inner = outer[0][0][0]
    runner = graphed(outer, admit_after=1)
    x = torch.ones(1, device=device)
    assert [runner(x).item() for _ in range(2)] == [2.0, 2.0]
    target: Any = {"instance": outer, "deep instance": inner, "class": Scale}[where]
    replacement = (lambda self, x: x * 7) if where == "class" else (lambda x: x * 7)
    monkeypatch.setattr(target, "forward", replacement)
    with pytest.warns(OstinatoWarning, match="forward"):
        assert runner(x).item() == 7.0
    assert runner(x).item() == 7.0


# Python values.

FACTOR = 2.0
SETTINGS = types.ModuleType("settings_of_a_user")


class Config:
    def __init__(self) -> None:
        self.factor = 2.0

    def apply(self, x: Tensor) -> Tensor:
        return x * self.factor


class Reads(nn.Module):
    shared = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0
        self.config = Config()
        self.layers = nn.ModuleList([nn.Module()])
        self.layers[0].factor = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor

    def by_class(self, x: Tensor) -> Tensor:
        return x * self.shared

    def by_config(self, x: Tensor) -> Tensor:
        return x * self.config.factor

    def by_method(self, x: Tensor) -> Tensor:
        return self.config.apply(x)

    def by_child(self, x: Tensor) -> Tensor:
        return x * self.layers[0].factor

    def by_name(self, x: Tensor) -> Tensor:
        return x * getattr(self, "factor", 1.0)

    def by_global(self, x: Tensor) -> Tensor:
        return x * FACTOR

    def by_python_module(self, x: Tensor) -> Tensor:
        return x * SETTINGS.factor


@pytest.mark.parametrize(
    ("method", "owner", "name"),
    [
        ("forward", lambda m: m, "factor"),
        ("by_class", lambda m: Reads, "shared"),
        ("by_config", lambda m: m.config, "factor"),
        ("by_method", lambda m: m.config, "factor"),
        ("by_child", lambda m: m.layers[0], "factor"),
        ("by_name", lambda m: m, "factor"),
        ("by_global", lambda m: __import__("sys").modules[__name__], "FACTOR"),
        ("by_python_module", lambda m: SETTINGS, "factor"),
    ],
)
def test_a_python_value_that_changes_is_warned_of_and_the_result_is_right(
    method: str,
    owner: Callable[[Any], Any],
    name: str,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SETTINGS.factor = 2.0  # type: ignore[attr-defined]
    module = Reads()
    runner = graphed(getattr(module, method), admit_after=1)
    x = torch.ones(1, device=device)
    assert [runner(x).item() for _ in range(2)] == [2.0, 2.0]
    monkeypatch.setattr(owner(module), name, 2.0 + 0.0)  # another object, the same value
    assert runner(x).item() == 2.0
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
    monkeypatch.setattr(owner(module), name, 3.0)
    with pytest.warns(OstinatoWarning, match=rf"{name}.* changed from 2.0 to 3.0") as caught:
        assert runner(x).item() == 3.0
    assert caught[0].filename == __file__
    assert runner.last.reason is Reason.ATTRIBUTE_CHANGED
    assert runner(x).item() == 3.0
    monkeypatch.setattr(owner(module), name, 4.0)
    assert runner(x).item() == 4.0  # warned of once


def test_a_value_that_no_run_reads_may_change(device: torch.device) -> None:
    module = Reads()
    runner = graphed(module, admit_after=1)
    x = torch.ones(1, device=device)
    runner(x)
    module.note = "new"  # type: ignore[assignment]
    runner(x)
    module.note = "newer"  # type: ignore[assignment]
    runner(x)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_an_entry_added_to_a_list_that_is_read_is_noticed(device: torch.device) -> None:
    weights = [torch.ones(1, device=device)]
    runner = graphed(lambda x: x + sum(weights), admit_after=1)
    x = torch.zeros(1, device=device)
    assert [runner(x).item() for _ in range(2)] == [1.0, 1.0]
    weights.append(torch.ones(1, device=device))
    with pytest.warns(OstinatoWarning, match="has 2 entries, had 1"):
        assert runner(x).item() == 2.0


def test_training_flags_are_part_of_the_key(device: torch.device, no_grad: None) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(device).eval()
    runner = graphed(module, admit_after=1)
    x = torch.randn(64, 4, device=device)
    for _ in range(2):
        module.eval()
        torch.testing.assert_close(runner(x), module(x))
        module.train()
        assert (runner(x) == 0).float().mean() > 0.2
        module[1].eval()
        torch.testing.assert_close(runner(x), module(x))
    assert len(runner.report().graphs) == 3


def test_objects_among_the_arguments_are_watched(device: torch.device, no_grad: None) -> None:
    runner = graphed(lambda module, x: module(x), admit_after=1)
    two, three = Scale(2.0, device), Scale(3.0, device)
    x = torch.ones(1, device=device)
    for _ in range(2):
        assert runner(two, x).item() == 2.0
        assert runner(three, x).item() == 3.0
    _setattr(two, 9.0)
    assert runner(two, x).item() == 9.0
    assert runner(three, x).item() == 3.0


def test_objects_of_past_calls_are_let_go(device: torch.device, no_grad: None) -> None:
    import gc
    import weakref

    runner = graphed(lambda cache, x: x + cache.value)
    kept = []
    for _ in range(200):
        cache = Config()
        cache.value = torch.ones(1, device=device)  # type: ignore[attr-defined]
        kept.append(weakref.ref(cache))
        runner(cache, torch.ones(1, device=device))
    del cache
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 64


# Both implementations of the check.


@pytest.mark.parametrize("lay_out", [PlacesInPython, watch_module.lay_out])
def test_both_checks_see_the_same(
    lay_out: Any, monkeypatch: pytest.MonkeyPatch, no_grad: None
) -> None:
    monkeypatch.setattr(watch_module, "lay_out", lay_out)
    if lay_out is PlacesInPython:
        monkeypatch.setattr(watch_module, "holds", PlacesInPython.hold)
    module = Reads()
    items = [1.0, 2.0]
    watch = Watch(module, items, Slotted(1.0), lambda: module)
    assert watch.changed() is None
    items[0] = 3.0
    assert str(watch.changed()).startswith("Change(reason=<Reason.ATTRIBUTE_CHANGED")
    watch.look_again()
    items.pop()
    assert watch.changed() is not None
    watch.look_again()
    del module.factor
    change = watch.changed()
    assert change is not None
    assert change.text == "factor was removed"
    watch.look_again()
    assert watch.changed() is None


def test_the_check_before_a_replay_runs_in_c_where_a_compiler_is() -> None:
    import shutil

    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("needs a C compiler when Ostinato is installed")
    assert watch_module.IS_NATIVE


def test_a_counter_does_not_make_every_call_walk_the_model_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks = []
    walk = watch_module.reach
    monkeypatch.setattr(watch_module, "reach", lambda *roots: walks.append(1) or walk(*roots))

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            self.latest = x * 2
            return self.latest

    runner = graphed(Counting())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OstinatoWarning)
        for _ in range(50):
            runner(torch.ones(1))
    assert runner.fn.calls == 50
    assert len(walks) <= 4


# Where and how the tensors lie that a recording read.

EXCHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.t(),
    "another-shape": lambda t: t.view(2, 8),
    "another-dtype": lambda t: t.view(torch.int32),
    "a-step": lambda t: t[::2],
    "another-place": lambda t: t.clone(),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("natively", [True, False])
def test_data_exchanged_behind_the_object_is_noticed(
    exchange: str, natively: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if natively and not watch_module.IS_NATIVE:
        pytest.skip("the compiled check was not built here")
    monkeypatch.setattr(watch_module, "IS_NATIVE", natively)
    tensors = [torch.randn(4, 4, device=device), torch.ones((), device=device)]
    watched = Addresses(tensors)
    assert watched.hold()
    before = tensors[0].data
    tensors[0].data = EXCHANGES[exchange](before)
    assert not watched.hold()
    tensors[0].data = before
    assert watched.hold()


def test_tensors_that_have_no_plain_memory_are_watched_too() -> None:
    special = [
        torch.zeros(2, 2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        torch.zeros(2, device="meta"),
    ]
    watched = Addresses(special)
    assert watched.hold()
    special[1].data = special[1].data.conj()
    assert not watched.hold()


# What the code asks of a tensor that it holds.


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize("asks", ["requires_grad", "grad"])
def test_a_fact_that_the_code_asks_of_its_own_tensor_is_compared(asks: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    fns: dict[str, Callable[[Tensor], Tensor]] = {
        "requires_grad": lambda x: x * 2 if weight.requires_grad else x * 3,
        "grad": lambda x: x * 2 if weight.grad is None else x * 3,
    }
    fn = fns[asks]
    runner = graphed(fn, admit_after=1, backend="tape")
    x = torch.ones(2)

    outcomes: list[Outcome | None] = []

    def switch(to: bool) -> None:
        if asks == "grad":
            weight.grad = None if to else torch.ones(2)
        else:
            weight.requires_grad_(to)

    with torch.inference_mode():
        for to in (True, False, True, False):
            switch(to)
            for _ in range(3):
                assert torch.equal(runner(x), fn(x))
                outcomes.append(runner.last.outcome if runner.last else None)
    assert outcomes[2] is Outcome.REPLAYED
    assert outcomes[3] is not Outcome.REPLAYED


def test_a_fact_that_the_code_does_not_ask_for_is_not_compared() -> None:
    weight = nn.Parameter(torch.ones(2))
    runner = graphed(lambda x: x * weight, admit_after=1, backend="tape")
    with torch.no_grad():
        for _ in range(3):
            runner(torch.ones(2))
            weight.grad = torch.ones(2)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED
