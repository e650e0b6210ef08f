"""The compiled check sees every way in which a dict, a list or an attribute can be changed.

In Python 3.12 it looks at a dict again only after Python has reported a change of it, so each way
to change one has to be reported: this asks after every single one.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

_unchanged = pytest.importorskip("ostinato.graphs._unchanged")
ABSENT = NotImplemented


class Holder:
    """As a module: attributes in a dict, looked at through `vars`."""

    def __init__(self) -> None:
        self.a = [1]
        self.b = [2]


def assign_often(holder: Any, value: object) -> None:
    for _ in range(100):  # until the interpreter has specialised the assignment
        holder.a = value


WAYS: dict[str, Callable[[dict[str, Any]], object]] = {
    "assigned": lambda d: d.__setitem__("a", [3]),
    "deleted": lambda d: d.__delitem__("a"),
    "popped": lambda d: d.pop("a"),
    "last-popped": lambda d: d.popitem(),
    "cleared": lambda d: d.clear(),
    "updated": lambda d: d.update(a=[3]),
    "updated-from-pairs": lambda d: d.update([("a", [3])]),
    "merged": lambda d: d.__ior__({"a": [3]}),
    "initialised-again": lambda d: d.__init__(a=[3]),  # type: ignore[misc]
    "grown": lambda d: d.__setitem__("c", [3]),
    "grown-by-default": lambda d: d.setdefault("c", [3]),
    "grown-beyond-its-table": lambda d: d.update({str(i): i for i in range(100)}),
    "cleared-and-refilled": lambda d: (d.clear(), d.update({"a": [3], "b": [2]})),
    "swapped": lambda d: d.update(a=d["b"], b=d["a"]),
}


CHANGING_KEYS = (
    "deleted", "popped", "last-popped", "cleared", "grown", "grown-by-default",
    "grown-beyond-its-table", "cleared-and-refilled",
)  # fmt: skip


def laid_out(held: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    places = tuple(part for key, value in held.items() for part in (held, key, value))
    places += (held, "absent", ABSENT)
    return _unchanged.lay_out(places, (sizes := (held, len(held)))), (places, sizes)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("way", WAYS)
def test_a_dict_that_is_changed_is_seen(way: str, kind: type[dict[str, Any]]) -> None:
    held = kind(a=[1], b=[2])
    check, _kept = laid_out(held)
    for _ in range(3):
        assert _unchanged.holds(check)
    WAYS[way](held)
    assert not _unchanged.holds(check)
    assert not _unchanged.holds(check)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("way", [*CHANGING_KEYS, "turned", "another kind of key"])
def test_the_keys_of_a_dict_are_seen_in_their_order(way: str, kind: type[dict[Any, Any]]) -> None:
    held = kind({"a": [1], "b": [2], 1: [3]})
    then = (held, tuple(held))
    check = _unchanged.lay_out((), then)
    for _ in range(3):
        assert _unchanged.holds(check)
    if way == "turned":
        held["a"] = held.pop("a")
    elif way == "another kind of key":
        held[True] = held.pop(1)
    else:
        WAYS[way](held)
    assert not _unchanged.holds(check)
    assert not _unchanged.holds(check)


def test_an_entry_of_an_ordered_dict_that_moves_is_seen() -> None:
    held = OrderedDict(a=1, b=2)
    then = (held, tuple(held))
    check = _unchanged.lay_out((), then)
    assert _unchanged.holds(check)
    held.move_to_end("a")
    assert not _unchanged.holds(check)


def test_items_of_a_set_that_are_equal_and_of_another_kind_are_seen() -> None:
    held: set[Any] = {1, "a"}
    then = (held, None, frozenset(held))
    check = _unchanged.lay_out(then, ())
    assert _unchanged.holds(check)
    held.remove(1)
    held.add(True)
    assert not _unchanged.holds(check)


@pytest.mark.parametrize("way", WAYS)
def test_attributes_that_are_changed_through_their_dict_are_seen(way: str) -> None:
    holder = Holder()
    check, _kept = laid_out(vars(holder))
    assert _unchanged.holds(check)
    WAYS[way](vars(holder))
    assert not _unchanged.holds(check)


ATTRIBUTE_WAYS: dict[str, Callable[[Any], object]] = {
    "assigned": lambda h: setattr(h, "a", [3]),
    "assigned-past-the-class": lambda h: object.__setattr__(h, "a", [3]),
    "assigned-by-specialised-code": lambda h: assign_often(h, [3]),
    "deleted": lambda h: delattr(h, "a"),
    "new": lambda h: setattr(h, "c", [3]),
    "absent-before": lambda h: setattr(h, "absent", [3]),
    "initialised-again": lambda h: h.__init__(),
    "state-set": lambda h: vars(h).update(vars(pickle.loads(pickle.dumps(h)))),
}


@pytest.mark.parametrize("kind", [Holder, lambda: SimpleNamespace(a=[1], b=[2])])
@pytest.mark.parametrize("way", ATTRIBUTE_WAYS)
def test_attributes_that_are_changed_by_assignment_are_seen(
    way: str, kind: Callable[[], Any]
) -> None:
    if way == "initialised-again" and kind is not Holder:
        pytest.skip("a namespace without arguments stays as it is")
    holder = kind()
    assign_often(Holder(), [0])  # objects of its class share their keys
    check, _kept = laid_out(vars(holder))
    assert _unchanged.holds(check)
    ATTRIBUTE_WAYS[way](holder)
    assert not _unchanged.holds(check)


def test_a_dict_that_is_as_before_again_holds_again() -> None:
    held = {"a": [1], "b": [2]}
    check, _kept = laid_out(held)
    kept = held["a"]
    held["a"] = [3]
    assert not _unchanged.holds(check)
    held["a"] = kept
    assert _unchanged.holds(check)
    held["a"] = [3]
    assert not _unchanged.holds(check)


def test_every_check_over_a_dict_sees_its_change() -> None:
    held = {"a": [1]}
    checks = [laid_out(held) for _ in range(3)]
    assert all(_unchanged.holds(check) for check, _ in checks)
    held["a"] = [3]
    assert not any(_unchanged.holds(check) for check, _ in checks)
    assert not any(_unchanged.holds(check) for check, _ in checks)


def test_a_change_of_one_dict_does_not_hide_that_of_another() -> None:
    one, other = {"a": [1]}, {"a": [1]}
    (first, _kept), (second, _too) = laid_out(one), laid_out(other)
    assert _unchanged.holds(first)
    assert _unchanged.holds(second)
    one["a"] = [3]
    assert _unchanged.holds(second)
    other["a"] = [3]
    assert not _unchanged.holds(second)
    assert not _unchanged.holds(first)


def test_a_change_that_a_check_itself_brings_about_is_seen_by_the_next() -> None:
    held = {"a": [1]}

    class Reading:
        changes = False

        @property
        def value(self) -> object:
            if self.changes:
                held["a"] = [3]
            return ABSENT

    reading = Reading()
    places = (held, "a", held["a"], reading, "value", ABSENT)
    check = _unchanged.lay_out(places, ())
    assert _unchanged.holds(check)
    reading.changes = True
    _unchanged.holds(check)
    assert not _unchanged.holds(check)


def others() -> Iterator[tuple[str, tuple[Any, ...], tuple[Any, ...], Callable[[], object]]]:
    series, names = [[1], [2]], {"__builtins__": {}, "a": [1]}
    holder, cell = Holder(), (lambda x: lambda: x)(1).__closure__[0]  # type: ignore[index]
    group = {1, 2}
    yield "list", (series, 0, series[0]), (), lambda: series.__setitem__(0, [3])
    yield "longer-list", (), (series, 2), lambda: series.append([3])
    yield "globals", (names, "a", names["a"]), (), lambda: names.__setitem__("a", [3])
    yield "attribute", (holder, "a", holder.a), (), lambda: setattr(holder, "a", [3])
    yield "cell", (cell, "cell_contents", 1), (), lambda: setattr(cell, "cell_contents", 3)
    yield "set", (), (group, 2), lambda: group.add(3)


@pytest.mark.parametrize("which", range(6))
def test_what_is_no_dict_is_looked_at_every_time(which: int) -> None:
    _, places, sizes, change = list(others())[which]
    held = {"b": [2]}
    places += (held, "b", held["b"])
    check = _unchanged.lay_out(places, sizes)
    assert _unchanged.holds(check)
    change()
    assert not _unchanged.holds(check)


# Cells and functions are read past their attributes, which must make no difference.


def cell_of(value: object) -> Any:
    def closing_over() -> object:
        return value

    (cell,) = closing_over.__closure__ or ()
    return cell


def make_function() -> Any:
    def function(a: int, b: int = 2, *, c: int = 3) -> int:
        return a + b + c

    return function


def plain_function() -> Any:
    def function() -> None:
        return None

    return function


def parts_of(function: Any) -> tuple[Any, tuple[Any, ...]]:
    names = ("__code__", "__defaults__", "__kwdefaults__", "__doc__", "absent")
    places = tuple(
        part for name in names for part in (function, name, getattr(function, name, ABSENT))
    )
    return _unchanged.lay_out(places, ()), places


CELL_WAYS: dict[str, Callable[[Any], object]] = {
    "set": lambda cell: setattr(cell, "cell_contents", [2]),
    "emptied": lambda cell: delattr(cell, "cell_contents"),
}


@pytest.mark.parametrize("way", CELL_WAYS)
def test_a_cell_that_is_changed_is_seen(way: str) -> None:
    cell = cell_of([1])
    value = cell.cell_contents
    check = _unchanged.lay_out(places := (cell, "cell_contents", value), ())
    assert _unchanged.holds(check)
    CELL_WAYS[way](cell)
    assert not _unchanged.holds(check)
    cell.cell_contents = value
    assert _unchanged.holds(check)
    assert places


def test_an_empty_cell_that_is_filled_is_seen() -> None:
    cell = cell_of([1])
    del cell.cell_contents
    check = _unchanged.lay_out(places := (cell, "cell_contents", ABSENT), ())
    assert _unchanged.holds(check)
    cell.cell_contents = [1]
    assert not _unchanged.holds(check)
    assert places


def test_another_attribute_of_a_cell_is_not_its_contents() -> None:
    cell = cell_of([1])
    check = _unchanged.lay_out(places := (cell, "__class__", type(cell)), ())
    assert _unchanged.holds(check)
    assert places


FUNCTION_WAYS: dict[str, Callable[[Any], object]] = {
    "code": lambda f: setattr(f, "__code__", (lambda a, b=0, *, c=0: a).__code__),
    "defaults": lambda f: setattr(f, "__defaults__", (5,)),
    "no-defaults": lambda f: setattr(f, "__defaults__", None),
    "kwdefaults": lambda f: setattr(f, "__kwdefaults__", {"c": 9}),
    "no-kwdefaults": lambda f: setattr(f, "__kwdefaults__", None),
    "doc": lambda f: setattr(f, "__doc__", "other"),
    "new": lambda f: setattr(f, "absent", 1),
}


@pytest.mark.parametrize("make", [make_function, plain_function])
@pytest.mark.parametrize("way", FUNCTION_WAYS)
def test_a_function_that_is_changed_is_seen(way: str, make: Callable[[], Any]) -> None:
    function = make()
    check, _kept = parts_of(function)
    assert _unchanged.holds(check)
    FUNCTION_WAYS[way](function)
    is_other = way not in ("no-defaults", "no-kwdefaults") or make is make_function
    assert _unchanged.holds(check) is not is_other
