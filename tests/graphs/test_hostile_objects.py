"""Objects whose own methods raise when they are looked into: the call is answered all the same."""

from __future__ import annotations

import array
import builtins
import collections
import dataclasses
import enum
import functools
import io
import random
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ostinato import Buckets, Outcome, Reason, graphed
from ostinato.graphs.random_states import try_state
from ostinato.graphs.reach import reach


class Boom(Exception):
    pass


def boom(*args: object, **kwargs: object) -> Any:
    raise Boom


def kind(base: Any, *methods: str, **members: Any) -> Any:
    """Return a subclass of a user's whose `methods` raise."""
    raising = dict.fromkeys(methods, boom)
    return type(f"Hostile{base.__name__}", (base,), {"__module__": "users", **raising, **members})


def meta(**members: Any) -> Any:
    return type("Meta", (type,), {"__module__": "users", **members})("Kind", (), {"scale": 2.0})


class Here:
    """Stays alive for weak references."""


HERE = Here()


class Bits(np.random.PCG64):
    @property
    def state(self) -> Any:
        raise Boom


class OddBits(np.random.PCG64):
    @property
    def state(self) -> Any:
        return {"lock": threading.Lock()}


class Raising(enum.Enum):
    A = 1
    __eq__ = boom

    def __hash__(self) -> int:
        raise Boom


@dataclasses.dataclass
class Unequal:
    scale: float = 2.0
    __eq__ = boom
    __hash__ = boom


class Ambiguous:
    def __init__(self) -> None:
        self.values = [1, 2]

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Key:
    __repr__ = boom


class HashedOnce:
    def __init__(self) -> None:
        self.times = 0

    def __hash__(self) -> int:
        self.times += 1
        if self.times > 1:
            raise Boom
        return 7


class Slot:
    __slots__ = ("scale",)


def raising_slot() -> Any:
    return kind(Slot, scale=property(boom))()


def set_later(made: Any, **members: Any) -> Any:
    for name, member in members.items():
        setattr(type(made), name, member)
    return made


def module(**members: Any) -> Any:
    return set_later(kind(nn.Linear)(2, 2), **members)


def tensor(**members: Any) -> Any:
    return set_later(torch.ones(2).as_subclass(kind(Tensor)), **members)


def ndarray(**members: Any) -> Any:
    return set_later(np.ones(3).view(kind(np.ndarray)), **members)


def released() -> memoryview:
    view = memoryview(bytearray(b"abc"))
    view.release()
    return view


def closed() -> Any:
    opened = io.StringIO()
    opened.close()
    return opened


def a_generator() -> Iterator[int]:
    yield 1


def odd_function(**attributes: Any) -> Any:
    def function() -> float:
        return 2.0

    for name, value in attributes.items():
        setattr(function, name, value)
    return function


def wrapped_in_itself() -> Any:
    function = odd_function()
    function.__wrapped__ = function
    return function


def nested() -> list[Any]:
    inner: list[Any] = []
    for _ in range(3000):
        inner = [inner]
    return inner


PAIRS = [("a", 2.0)]
THINGS: dict[str, Callable[[], Any]] = {
    "random, getstate": lambda: kind(random.Random, "getstate")(3),
    "random, setstate": lambda: kind(random.Random, "setstate")(3),
    "random, no state": lambda: kind(random.Random, "getstate", "setstate", "random")(),
    "random, ==": lambda: kind(random.Random, "__eq__", "__hash__")(3),
    "random, the system's": random.SystemRandom,
    "numpy, no state": lambda: np.random.Generator(Bits()),
    "numpy, a state that cannot be copied": lambda: np.random.Generator(OddBits()),
    "numpy, legacy": lambda: kind(np.random.RandomState, "get_state")(3),
    "numpy, another bit generator": lambda: np.random.Generator(np.random.Philox(1)),
    **{
        f"{base.__name__}, {name}": functools.partial(lambda b, n: kind(b, n)(PAIRS), base, name)
        for base in (dict, list, set)
        for name in ("__len__", "__iter__", "__contains__", "__eq__", "__bool__", "__repr__")
    },
    **{
        f"dict, {name}": lambda name=name: kind(dict, name)(a=2.0)  # type: ignore[misc]
        for name in ("items", "keys", "get", "copy", "pop", "__getitem__", "__getattribute__")
    },
    "tuple, __iter__": lambda: kind(tuple, "__iter__")((1, 2.0)),
    "deque, __iter__": lambda: kind(collections.deque, "__iter__")([1]),
    "ordered, items": lambda: kind(collections.OrderedDict, "items", "__len__")(),
    **{
        f"object, {name}": lambda name=name: object.__new__(kind(object, name))  # type: ignore[misc]
        for name in ("__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__getattr__",
                     "__getattribute__", "__repr__", "__class__", "__array__")
    },
    **{
        f"object, property {name}": lambda name=name: object.__new__(  # type: ignore[misc]
            kind(object, **{name: property(boom)})
        )
        for name in ("__class__", "__dict__", "__module__", "__wrapped__", "__self__", "scale")
    },
    "a number, ==": lambda: kind(int, "__eq__", "__hash__")(3),
    "a word, hash": lambda: kind(str, "__hash__", "__eq__")("a"),
    "slot": raising_slot,
    "slots that are none": lambda: set_later(kind(object)(), __slots__=5),
    "module, training": lambda: module(training=property(boom)),
    "module, parameters": lambda: module(_parameters=property(boom)),
    "module, hooks": lambda: module(_forward_hooks=property(boom)),
    "module, len": lambda: module(__len__=boom, __iter__=boom, __bool__=boom),
    "module, getattr": lambda: module(__getattr__=boom),
    "module, not made yet": lambda: object.__new__(kind(nn.Linear)),
    "tensor, torch function": lambda: tensor(__torch_function__=classmethod(boom)),
    "tensor, is_leaf": lambda: tensor(is_leaf=property(boom), grad=property(boom)),
    "tensor, ==": lambda: tensor(__eq__=boom, __hash__=boom, __bool__=boom),
    "tensor, not made yet": nn.UninitializedParameter,
    "array, tobytes": lambda: ndarray(tobytes=boom),
    "array, flags": lambda: ndarray(flags=property(boom)),
    "array, dtype": lambda: ndarray(dtype=property(boom)),
    "array, copied": lambda: ndarray(__array_finalize__=boom),
    "array, of objects": lambda: np.array([HERE], dtype=object),
    "bytes, len": lambda: kind(bytearray, "__len__")(b"abc"),
    "numbers, len": lambda: kind(array.array, "__len__")("d", [1.0]),
    "memory, released": released,
    "mapping proxy": lambda: types.MappingProxyType(kind(dict, "get", "items")(a=1)),
    "weak, dead": lambda: weakref.proxy(Here()),
    "weak, alive": lambda: weakref.proxy(HERE),
    "weak values": lambda: weakref.WeakValueDictionary(a=HERE),
    "enum": lambda: Raising.A,
    "dataclass": Unequal,
    "ambiguous": Ambiguous,
    "key, repr": lambda: {Key(): 2.0},
    "key, hashed once": lambda: {HashedOnce(): 2.0},
    "mock": mock.MagicMock,
    **{
        f"mock of {spec.__name__}": lambda spec=spec: mock.MagicMock(spec=spec)  # type: ignore[misc]
        for spec in (dict, list, nn.Module, Tensor, random.Random, np.ndarray, bytearray, type,
                     types.ModuleType, types.FunctionType, functools.partial, torch.Generator)
    },
    "metaclass, hash": lambda: meta(__hash__=boom),
    "metaclass, ==": lambda: meta(__eq__=boom),
    "metaclass, attributes": lambda: meta(__getattribute__=boom),
    "metaclass, mro": lambda: meta(__mro__=property(boom)),
    "metaclass, dict": lambda: meta(__dict__=property(boom)),
    "metaclass of an object": lambda: object.__new__(meta(__eq__=boom)),
    "class of module 5": lambda: type("Q", (), {"__module__": 5})(),
    "function of module 5": lambda: odd_function(__module__=5),
    "function, wrapped in itself": wrapped_in_itself,
    "function, odd attributes": lambda: odd_function(scale=kind(object, "__eq__", "__class__")()),
    "partial, ==": lambda: kind(functools.partial, "__eq__", "__hash__")(boom),
    "Python module, dict": lambda: kind(types.ModuleType, __dict__=property(boom))("users"),
    "Python module, name": lambda: kind(types.ModuleType, __name__=property(boom))("users"),
    "iterator": lambda: kind(object, "__iter__", "__next__")(),
    "generator": a_generator,
    "file, closed": closed,
    "lock": threading.Lock,
    "NotImplemented": lambda: NotImplemented,
    "deep": nested,
}  # fmt: skip


def as_closure(thing: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x * 2 if thing is not None else x


def as_attribute(thing: Any) -> Callable[[Tensor], Tensor]:
    class Holder(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * getattr(self, f"scale_{1}") + (self.thing is None)

    holder = Holder()
    vars(holder).update(thing=thing, scale_1=2.0)  # any name may be read: all is watched
    return holder


def as_global(thing: Any) -> Callable[[Tensor], Tensor]:
    held: dict[str, Any] = {"thing": thing, "__builtins__": builtins, "__name__": "users"}
    exec("def step(x):\n    return x * 2 if thing is not None else x\n", held)
    step: Callable[[Tensor], Tensor] = held["step"]
    return step


def as_names(thing: Any) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor) -> Tensor:
        if thing is None:  # never; but all that stands here may be read or written
            thing.scale = thing.grad + thing.requires_grad + thing.random() + thing.state
            thing[0] = thing.items, thing.get
            thing.append(thing.training)
        return x * 2

    return step


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
@pytest.mark.parametrize("how", [as_closure, as_attribute, as_global, as_names])
@pytest.mark.parametrize("name", THINGS)
def test_an_object_that_raises_when_it_is_looked_into_costs_no_answer(
    name: str, how: Callable[[Any], Callable[[Tensor], Tensor]]
) -> None:
    step = how(THINGS[name]())
    g = graphed(step, admit_after=1, backend="tape", buckets={"x": Buckets(0, (4,))})
    with torch.no_grad():
        for value in range(3):
            x = torch.full((3,), float(value))
            assert torch.equal(g(x), step(x))
    g.report()
    g.close()


UNREADABLE = ("random, getstate", "random, setstate", "numpy, no state", "dict, __len__", "slot",
              "key, repr", "weak, dead", "object, property __class__")  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_looked_into_is_told_with_its_name(name: str) -> None:
    thing = THINGS[name]()
    found = reach(lambda: thing)
    assert any("thing, which raises" in told for _, told in found.unreadable), found.unreadable


def test_the_reason_names_the_object_and_what_it_raised() -> None:
    dice = kind(random.Random, "getstate")(3)
    g = graphed(lambda x: x * 2 if dice else x, admit_after=1, backend="tape")
    with pytest.warns(match="which raises Boom"):
        g(torch.ones(2))
    assert g.last is not None
    assert (g.last.outcome, g.last.reason) == (Outcome.EAGER, Reason.PYTHON_SIDE_EFFECT)
    told = "it may read the HostileRandom dice, which raises Boom when it is looked into"
    assert told in g.last.detail


def test_what_the_code_does_not_name_is_no_reason() -> None:
    class Holder:
        dice = kind(random.Random, "getstate")(3)

        def __call__(self, x: Tensor) -> Tensor:
            return x * 2

    g = graphed(Holder(), admit_after=1, backend="tape")
    for _ in range(2):
        g(torch.ones(2))
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED


@pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")
def test_what_raises_only_later_is_a_change() -> None:
    class Fickle:
        __slots__ = ("_scale",)
        is_broken = False

        def __getattribute__(self, name: str) -> Any:
            if Fickle.is_broken and name == "_scale":
                raise Boom
            return object.__getattribute__(self, name)

    fickle = Fickle()
    fickle._scale = 2.0

    def step(x: Tensor) -> Tensor:
        try:
            return x * fickle._scale
        except Boom:
            return x * 5

    g = graphed(step, admit_after=1, backend="tape")
    x = torch.ones(2)
    for _ in range(2):
        assert g(x).tolist() == [2.0, 2.0]
    Fickle.is_broken = True
    for _ in range(3):
        assert g(x).tolist() == [5.0, 5.0]


def test_a_state_that_is_another_each_time_is_none() -> None:
    class Restless(random.Random):
        times = 0

        def getstate(self) -> Any:
            self.times += 1
            return self.times

    with pytest.raises(ValueError, match="another each time"):
        try_state(Restless())


def test_subclasses_that_translate_are_read_and_put_back_through_their_base(
    device: torch.device,
) -> None:
    class Upper(dict[str, float]):
        def get(self, key: str, default: Any = None) -> Any:
            return super().get(key.upper(), default)

        def items(self) -> Any:
            return [(key.lower(), value) for key, value in super().items()]

    scales = Upper(A=2.0)
    g = graphed(lambda x: x * scales.get("a"), admit_after=1)
    x = torch.ones(2, device=device)
    for _ in range(2):
        assert g(x).tolist() == [2.0, 2.0]
    assert g.last is not None
    assert g.last.outcome is Outcome.REPLAYED
    scales["A"] = 3.0
    with pytest.warns(match="changed from 2.0 to 3.0"):
        assert g(x).tolist() == [3.0, 3.0]
