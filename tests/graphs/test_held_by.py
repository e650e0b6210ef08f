"""Values behind what Python itself makes: bound methods of a dict, views, kinds of partials."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_eager, check_replay
from ostinato.graphs import Reason, graphed
from ostinato.graphs.held_by import held_by

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.inference_mode():
        yield


D = {"a": 2.0}
L = [2.0]
get = D.get
item = D.__getitem__
item_of_list = L.__getitem__
get_a = functools.partial(D.get, "a")
values, items, keys = D.values(), D.items(), D.keys()
shown = types.MappingProxyType(D)
kept = [D.get]


class Kinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k = 2.0

    def _run(self, x: Tensor, mode: str) -> Tensor:
        return x * self.k if mode == "a" else x

    forward = functools.partialmethod(_run, mode="a")  # type: ignore[assignment]

    @functools.singledispatchmethod
    def for_type(self, x: Any) -> Any:
        return x

    @for_type.register
    def _(self, x: Tensor) -> Tensor:
        return x * self.k


def closed_over() -> Callable[[Tensor], Tensor]:
    get = D.get
    return lambda x: x * get("a")  # type: ignore[operator]


HOLDING: dict[str, Callable[[Tensor], Tensor]] = {
    "get": lambda x: x * get("a"),  # type: ignore[operator]
    "__getitem__": lambda x: x * item("a"),
    "of a list": lambda x: x * item_of_list(0),
    "partial": lambda x: x * get_a(),  # type: ignore[operator]
    "values": lambda x: x * sum(values),
    "items": lambda x: x * dict(items)["a"],
    "keys": lambda x: x * keys.mapping["a"],
    "mappingproxy": lambda x: x * shown["a"],
    "in a list": lambda x: x * kept[0]("a"),  # type: ignore[operator]
    "closed over": closed_over(),
}


@pytest.mark.parametrize("how", HOLDING)
def test_a_change_of_the_container_behind_is_noticed(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(2)
    run = graphed(HOLDING[how], admit_after=1)
    run(x)
    check_replay(run, x)
    monkeypatch.setitem(D, "a", 5.0)
    L[0] = 5.0
    try:
        assert torch.equal(run(x), x * 5)
        check_replay(run, x)
    finally:
        L[0] = 2.0


@pytest.mark.parametrize("how", ["forward", "for_type"])
def test_a_change_of_what_a_kind_of_partial_method_reads_is_noticed(how: str) -> None:
    module, x = Kinds(), torch.ones(2)
    run = graphed(module if how == "forward" else module.for_type, admit_after=1)
    run(x)
    check_replay(run, x)
    module.k = 5.0
    assert torch.equal(run(x), x * 5)
    check_replay(run, x)


LOG: list[int] = []
remember = LOG.append
tick = itertools.count().__next__


def remembering(x: Tensor) -> Tensor:
    remember(1)
    return x * 2


def ticking(x: Tensor) -> Tensor:
    tick()
    return x * 2


def test_a_bound_method_that_changes_its_container_is_refused() -> None:
    LOG.clear()
    run = graphed(remembering, admit_after=1)
    for _ in range(3):
        check_eager(run, Reason.PYTHON_SIDE_EFFECT, torch.ones(2))
    assert len(LOG) == 6  # check_eager runs the function beside the runner


def test_what_nothing_is_read_from_is_no_reason_to_refuse() -> None:
    run = graphed(ticking, admit_after=1)
    run(torch.ones(2))
    check_replay(run, torch.ones(2))


def test_what_python_3_14_binds_for_a_type_is_looked_into() -> None:
    class Bound:  # as there: an object of a class of the library's own, which only holds these
        def __init__(self, unbound: object, obj: object) -> None:
            self._unbound, self._obj = unbound, obj

    Bound.__name__ = "_singledispatchmethod_get"
    Bound.__module__ = "functools"
    kinds = Kinds()
    unbound = vars(Kinds)["for_type"]
    held = list(held_by(Bound(unbound, kinds)))
    assert any(each is kinds for each in held)
    assert any(each is unbound for each in held)
