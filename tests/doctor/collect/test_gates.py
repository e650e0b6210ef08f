"""Gates: a call is looked at where its arguments say so, and the original answers all others."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.doctor.collect import gates
from ostinato.doctor.collect.gates import Question, in_python

Gate = Callable[..., Any]
Make = Callable[..., Gate]

NATIVE = pytest.mark.skipif(not gates.IS_NATIVE, reason="the gates in C were not built")
IN_C = pytest.param(lambda *given: gates.gate(*given), id="c", marks=NATIVE)
x = torch.arange(6.0).reshape(2, 3)
mask, numbers = torch.tensor([True, False]), torch.tensor([1, 0])


@pytest.fixture(params=[IN_C, pytest.param(in_python, id="python")])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def looked() -> list[tuple[Any, ...]]:
    return []


def looking(original: Any, looked: list[tuple[Any, ...]]) -> Gate:
    def look(*args: Any, **kwargs: Any) -> Any:
        looked.append((*args, kwargs) if kwargs else args)
        return original(*args, **kwargs)

    return look


def gated(make: Make, question: Question, name: str, looked: Any, *kinds: type) -> Gate:
    original = getattr(Tensor, name)
    return make(question, original, looking(original, looked), kinds)


@pytest.mark.parametrize(
    ("index", "is_looked_at"),
    [
        (1, False),
        (slice(0, 1), False),
        (None, False),
        (..., False),
        (numbers, False),
        ((slice(None), numbers), False),
        ((..., None, 0), False),
        ((), False),
        (True, False),
        (mask, True),
        ((mask, 0), True),
        ((slice(None), torch.tensor([True, False, True])), True),
    ],
)
def test_an_index_is_looked_at_where_it_has_a_mask(
    make: Make, looked: list[Any], index: Any, is_looked_at: bool
) -> None:
    indexing = gated(make, Question.IS_MASK, "__getitem__", looked)
    assert torch.equal(indexing(x, index), x[index])
    assert bool(looked) is is_looked_at


def test_a_write_is_looked_at_where_its_index_has_a_mask(make: Make, looked: list[Any]) -> None:
    writing = gated(make, Question.IS_MASK, "__setitem__", looked)
    y = torch.zeros(2, 3)
    writing(y, 0, 1.0)
    assert looked == []
    writing(y, mask, torch.full((1, 3), 2.0))
    assert len(looked) == 1
    assert y.tolist() == [[2.0] * 3, [0.0] * 3]


def test_a_move_is_looked_at_by_the_kind_of_its_arguments(make: Make, looked: list[Any]) -> None:
    to = gated(make, Question.IS_ONE_OF, "to", looked, str, torch.device)
    assert to(x, torch.float64).dtype is torch.float64
    assert looked == []
    to(x, "cpu")
    to(x, torch.device("cpu"))
    assert to(x, dtype=torch.float64).dtype is torch.float64
    assert [given[1:] for given in looked] == [
        ("cpu",),
        (torch.device("cpu"),),
        ({"dtype": torch.float64},),
    ]


def test_a_copy_is_looked_at_where_the_tensor_lies_loose(make: Make, looked: list[Any]) -> None:
    reshape = gated(make, Question.IS_LOOSE, "reshape", looked)
    assert reshape(x, 3, 2).shape == (3, 2)
    assert reshape(x, (6,)).tolist() == x.flatten().tolist()
    assert looked == []
    assert reshape(x.t(), 6).tolist() == x.t().flatten().tolist()
    assert len(looked) == 1


@pytest.mark.parametrize("question", [Question.IS_MASK, Question.IS_ONE_OF, Question.IS_LOOSE])
def test_what_is_wrong_is_for_the_original_to_say(
    make: Make, looked: list[Any], question: Question
) -> None:
    name = {Question.IS_MASK: "__getitem__", Question.IS_ONE_OF: "to"}.get(question, "reshape")
    gate = gated(make, question, name, looked, str)
    with pytest.raises(TypeError):
        gate(5, 0)
    with pytest.raises((TypeError, IndexError, RuntimeError)):
        gate(x, 7)


def test_what_a_look_raises_comes_through(make: Make) -> None:
    def look(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(Question.IS_MASK, Tensor.__getitem__, look, ())(x, mask)


@NATIVE
def test_a_gate_in_c_is_a_method_of_the_class_that_has_it(looked: list[Any]) -> None:
    class Own(Tensor):
        pass

    to = gated(gates.gate, Question.IS_ONE_OF, "to", looked, str)
    Own.to = to  # type: ignore[method-assign]
    own = x.as_subclass(Own)
    assert own.to(torch.float64).dtype is torch.float64
    bound = own.to
    assert bound("cpu") is own
    assert looked == [(own, "cpu")]
    assert Own.to is to


@NATIVE
def test_a_gate_in_c_is_pickled_by_its_name(
    looked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    to: Any = gated(gates.gate, Question.IS_ONE_OF, "to", looked)
    to.__module__, to.__qualname__ = "torch", "Tensor.to"
    monkeypatch.setattr(Tensor, "to", to)
    assert pickle.loads(pickle.dumps(to)) is to


@NATIVE
def test_a_subclass_hears_of_an_index_as_it_would_without_a_gate(
    looked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []

    class Hearing(Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    indexing = gated(gates.gate, Question.IS_MASK, "__getitem__", looked)
    assert indexing(x.as_subclass(Hearing), 0).tolist() == x[0].tolist()
    assert Tensor.__getitem__ in heard


@NATIVE
def test_a_thread_that_passes_over_calls_looks_at_none_and_others_do(looked: list[Any]) -> None:
    reads = gated(gates.gate, Question.NOTHING, "tolist", looked)
    gates.begin()
    gates.pass_over(True)
    try:
        assert reads(numbers) == [1, 0]
        assert looked == []
        thread = threading.Thread(target=reads, args=(numbers,))
        thread.start()
        thread.join()
        assert len(looked) == 1
        gates.begin()  # another watch: it has not said yet that this thread passes anything over
        reads(numbers)
        assert len(looked) == 2
    finally:
        gates.pass_over(False)


@NATIVE
def test_a_question_that_there_is_not_is_refused() -> None:
    from importlib import import_module

    native = import_module("ostinato.doctor.collect._gate")
    with pytest.raises(ValueError, match="there is no question 4"):
        native.gate(4, Tensor.to, Tensor.to, ())
    with pytest.raises(TypeError):
        native.gate(1, Tensor.to, Tensor.to, [str])
