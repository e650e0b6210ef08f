"""What a container held is put back: contents, order, and what its next `pop` takes."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import pytest
import torch

from ostinato.graphs.container_state import DictState, SeriesState, nested, state_of_container


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_a_set_gives_its_items_in_the_same_order(taken: int) -> None:
    held, twin = set(range(40)), set(range(40))
    for _ in range(taken):
        held.pop()
        twin.pop()
    state = SeriesState(held)
    for _ in range(7):
        held.pop()
    held.add(100)
    state.put_back()
    assert [held.pop() for _ in range(len(twin))] == [twin.pop() for _ in range(len(twin))]


def test_a_set_that_only_grew_keeps_its_order() -> None:
    held = {f"item {i}" for i in range(50)}
    before = list(held)
    state = SeriesState(held)
    held.add("one more")
    state.put_back()
    assert list(held) == before


def test_the_keys_of_a_dict_come_back_as_the_objects_they_were() -> None:
    held: dict[Any, Any] = {1: "a", "b": 2}
    state = DictState(held)
    del held[1]
    held[True] = "a"
    assert state.is_rearranged()
    state.put_back()
    assert list(held.items()) == [(1, "a"), ("b", 2)]
    assert type(next(iter(held))) is int
    assert not state.is_rearranged()


def test_tensors_as_keys_are_told_apart_by_what_they_are() -> None:
    one, other = torch.zeros(2), torch.zeros(2)
    held = {one: 1, other: 2}
    state = DictState(held)
    held[one] = held.pop(one)
    assert state.is_rearranged()
    state.put_back()
    assert [id(key) for key in held] == [id(one), id(other)]


def test_a_subclass_that_refuses_is_put_back_all_the_same() -> None:
    class Closed(OrderedDict[str, int]):
        def __setitem__(self, key: str, value: int) -> None:
            raise KeyError(key)

        def clear(self) -> None:
            raise RuntimeError

    held: Any = Closed()
    OrderedDict.__setitem__(held, "a", 1)
    OrderedDict.__setitem__(held, "b", 2)
    state = state_of_container(held)
    OrderedDict.pop(held, "a")
    state.put_back()
    assert list(held.items()) == [("a", 1), ("b", 2)]


def test_a_deque_keeps_its_length_limit_and_its_order() -> None:
    held = deque([1, 2, 3], maxlen=3)
    state = state_of_container(held)
    held.rotate(1)
    held.append(4)
    state.put_back()
    assert list(held) == [1, 2, 3]
    assert held.maxlen == 3


def test_nested_containers_are_found_once_with_their_paths() -> None:
    inner: list[Any] = [1]
    inner.append(inner)
    outer = {"a": (inner, {"b": {2}}), "c": inner}
    found = {id(held): name for name, held in nested([("root", outer)])}
    assert len(found) == 3
    assert "root['a'][1]['b']" in found.values()
