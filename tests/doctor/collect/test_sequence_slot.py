"""Indexing of tensors is watched, and a tensor is still no sequence to CPython."""

from __future__ import annotations

import ctypes
import warnings

import pytest
import torch
from torch import Tensor, nn

from ostinato.doctor.collect import patches
from ostinato.doctor.collect.sequence_slot import can_stay_no_sequence
from ostinato.doctor.watching import Watch


def is_sequence(value: object) -> bool:
    return bool(ctypes.pythonapi.PySequence_Check(ctypes.py_object(value)))


class Own(Tensor):
    """A subclass of a program."""


def check(x: Tensor) -> None:
    assert not is_sequence(x)
    assert torch.tensor([x[0], x[1]]).tolist() == x.tolist()
    assert not is_sequence(nn.Parameter(x))
    assert not is_sequence(x.as_subclass(Own))
    assert [float(one) for one in x] == x.tolist()


def test_tensors_in_a_list_become_a_tensor_while_somebody_watches_and_after() -> None:
    assert can_stay_no_sequence()
    x = torch.tensor([2.0, 3.0])
    for _ in range(2):
        with Watch():
            check(x)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.jit.script(nn.Linear(2, 2))  # the originals are put back meanwhile
            check(x)

            class Made(Tensor):
                """Made while `__getitem__` was replaced."""

        check(x)
        assert not is_sequence(x.as_subclass(Made))


def test_a_boolean_mask_is_still_seen() -> None:
    x = torch.tensor([2.0, 3.0])
    with Watch() as watching:
        for _ in range(4):
            x[x > 2]
    assert any(wait.op == "boolean mask" for wait in watching.evidence.waits)


def test_where_types_lie_otherwise_indexing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "can_stay_no_sequence", lambda: False)
    own = Tensor.__getitem__
    with Watch() as watching:
        assert Tensor.__getitem__ is own
    assert any("boolean mask" in problem for problem in watching.report().problems)
