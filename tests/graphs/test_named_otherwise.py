"""What code reads by ways of naming that are neither `a.b` nor `getattr`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import MethodWrapperType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_replay
from ostinato.graphs import graphed
from ostinato.graphs.computed_names import asks_any_name, computes_names
from ostinato.graphs.reading import names_read

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.inference_mode():
        yield


@dataclasses.dataclass
class Config:
    scale: float = 2.0


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.which = "le"


class Renaming:
    """Answers to `dyn` with what it calls `scale`."""

    dyn: float

    def __init__(self) -> None:
        self.scale = 2.0

    def __getattribute__(self, name: str) -> Any:
        if name == "dyn":
            return object.__getattribute__(self, "scale")
        return object.__getattribute__(self, name)


class Passing(nn.Module):
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


def ask(one: Any, name: str) -> Any:
    return one.__getattribute__(name)


class BySuper(Named):
    def read(self) -> float:
        return super().__getattribute__("scale")  # type: ignore[no-any-return]


def by_pattern(x: Tensor) -> Tensor:
    match config:
        case Config(scale=scale):
            return x * scale
    return x


def by_position(x: Tensor) -> Tensor:
    match config:
        case Config(scale):
            return x * scale
    return x


config = Config()
named = Named()
renaming = Renaming()
by_super = BySuper()
bound = named.__getattribute__
SCALE = 2.0
OWNERS: tuple[Any, ...] = (config, named, renaming, by_super)

NAMING: dict[str, Callable[[Tensor], Tensor]] = {
    "asdict": lambda x: x * dataclasses.asdict(config)["scale"],
    "astuple": lambda x: x * dataclasses.astuple(config)[0],
    "getmembers": lambda x: x * dict(inspect.getmembers(config))["scale"],
    "__getattribute__": lambda x: x * named.__getattribute__("scale"),
    "of object": lambda x: x * object.__getattribute__(named, "sca" + named.which),
    "of super": lambda x: x * by_super.read(),
    "of a helper": lambda x: x * ask(named, "scale"),
    "of an override": lambda x: x * renaming.dyn,
    "bound": lambda x: x * bound("scale"),
    "getattr_static": lambda x: x * inspect.getattr_static(named, "scale"),
    "pattern": by_pattern,
    "position": by_position,
    "format": lambda x: x * float("{0.scale}".format(config)),  # noqa: UP030, UP032 - likewise
    "vars of its module": lambda x: x * vars(sys.modules[__name__])["SCALE"],
    "its module": lambda x: x * sys.modules[__name__].SCALE,
    "import_module": lambda x: x * importlib.import_module(__name__).SCALE,
    "environb": lambda x: x * float(os.environb[b"SCALE_OF_A_TEST"]),
}


@pytest.mark.parametrize("how", NAMING)
def test_a_change_is_noticed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALE_OF_A_TEST", "2.0")
    x = torch.ones(2)
    run = graphed(NAMING[how], admit_after=1)
    run(x)
    check_replay(run, x)
    monkeypatch.setenv("SCALE_OF_A_TEST", "5.0")
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    for owner in OWNERS:
        monkeypatch.setattr(owner, "scale", 5.0)
    assert torch.equal(run(x), x * 5)
    check_replay(run, x)


def test_a_getattribute_that_passes_its_name_on_computes_none() -> None:
    assert not computes_names(Passing.__getattribute__.__code__)  # type: ignore[attr-defined]
    assert not computes_names(Renaming.__getattribute__.__code__)  # type: ignore[attr-defined]
    assert not computes_names(NAMING["__getattribute__"].__code__)
    assert not computes_names(NAMING["getattr_static"].__code__)
    assert computes_names(ask.__code__)


def test_a_bound_getattribute_may_read_any_name() -> None:
    assert isinstance(bound, MethodWrapperType)
    assert asks_any_name(bound)
    assert asks_any_name(object.__getattribute__)
    assert not asks_any_name([].__len__)
    assert not asks_any_name(print)


def test_a_pattern_says_what_it_reads() -> None:
    assert "scale" in names_read(by_pattern.__code__)
    assert "__match_args__" in names_read(by_position.__code__)
    assert "__match_args__" not in names_read(by_pattern.__code__)
