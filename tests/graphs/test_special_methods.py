"""Values that only a special method reads, or that a subclass of a container holds, are watched."""

from __future__ import annotations

import functools
import operator
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import graphed

SPECIAL: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    "__len__": (len, lambda s: s.n),
    "__bool__": (lambda o: 3 if o else 1, lambda s: s.n > 3),
    "__getitem__": (operator.itemgetter(0), lambda s, _: s.n),
    "__contains__": (lambda o: 2 if 3 in o else 1, lambda s, _: s.n > 3),
    "__float__": (float, lambda s: float(s.n)),
    "__int__": (int, lambda s: s.n),
    "__index__": (operator.index, lambda s: s.n),
    "__hash__": (lambda o: hash(o) % 9, lambda s: s.n),
    "__eq__": (lambda o: 2 if o == 7 else 1, lambda s, other: s.n == other),
    "__lt__": (lambda o: 2 if o < 3 else 1, lambda s, other: s.n < other),
    "__mul__": (lambda o: o * 1, lambda s, _: s.n),
    "__rmul__": (lambda o: 1 * o, lambda s, _: s.n),
    "__matmul__": (lambda o: o @ 1, lambda s, _: s.n),
    "__neg__": (operator.neg, lambda s: s.n),
    "__abs__": (abs, lambda s: s.n),
    "__invert__": (operator.invert, lambda s: s.n),
    "__round__": (round, lambda s: s.n),
    "__complex__": (lambda o: complex(o).real, lambda s: complex(s.n)),
    "__reversed__": (lambda o: next(reversed(o)), lambda s: iter([s.n])),
    "__getattr__": (lambda o: o.absent, lambda s, _: s.__dict__["n"] * s.n),
}

CONTAINERS = [dict, OrderedDict, list, tuple, set, deque, Counter, functools.partial]


class Owner:
    def __init__(self) -> None:
        self.n = 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("is_given", [False, True], ids=["closed-over", "given"])
def test_what_a_special_method_reads(name: str, is_given: bool) -> None:
    ask, answer = SPECIAL[name]
    owner = type("Special", (Owner,), {name: answer, "__module__": __name__})()
    given = (owner,) if is_given else ()

    def step(x: Tensor, one: Any = owner) -> Tensor:
        return x * ask(one)

    run = graphed(step, admit_after=1, backend="tape")
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(run(x, *given), step(x, *given))
    owner.n = 7
    assert torch.equal(run(x, *given), step(x, *given))


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 2

    def __len__(self) -> int:
        return self.n

    def forward(self, x: Tensor) -> Tensor:
        return x * len(self)


@pytest.mark.filterwarnings("ignore")
def test_what_a_special_method_of_a_module_reads() -> None:
    module = Sized()
    run = graphed(module, admit_after=1, backend="tape")
    assert run(torch.ones(2)).tolist() == [2, 2]
    module.n = 7
    assert run(torch.ones(2)).tolist() == [7, 7]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("base", CONTAINERS, ids=lambda base: base.__name__)
@pytest.mark.parametrize("is_given", [False, True], ids=["closed-over", "given"])
def test_an_attribute_beside_the_entries_of_a_container(base: Any, is_given: bool) -> None:
    kind = type("Kept", (base,), {"__module__": __name__})
    kept = kind(print) if base is functools.partial else kind()
    kept.scale = 2.0
    given = (kept,) if is_given and base is not functools.partial else ()

    def step(x: Tensor, one: Any = kept) -> Tensor:
        return x * one.scale

    run = graphed(step, admit_after=1, backend="tape")
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(run(x, *given), step(x, *given))
    kept.scale = 7.0
    assert torch.equal(run(x, *given), step(x, *given))


@dataclass
class State:
    scale: float
    seen: int = 0

    def __repr__(self) -> str:
        return f"seen {self.seen}"


def test_a_counter_that_only_generated_or_shown_words_read_drops_no_recording() -> None:
    state = State(2.0)
    run = graphed(lambda x: x * state.scale, admit_after=1, backend="tape")
    for _ in range(4):
        run(torch.ones(2))
        state.seen += 1
    assert run.report().recordings == 1
