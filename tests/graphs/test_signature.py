"""Signatures: plain values that compare, print and explain themselves."""

from __future__ import annotations

from typing import Any

import torch

from ostinato.graphs.fitting import Fitting
from ostinato.graphs.signature import Signature, differences


def signature(*args: Any, buckets: Any = None, **kwargs: Any) -> Signature:
    fitting = Fitting(lambda x, scale=1.0, **more: None, buckets or {})
    leaves, structure = fitting.open(args, kwargs)
    found = fitting.sign(leaves, structure, (True,)).signature
    assert found is not None
    return found


def test_equal_situations_are_equal_keys() -> None:
    one, two = signature(torch.ones(2), 3), signature(torch.zeros(2), 3)
    assert one is not two
    assert one == two
    assert hash(one) == hash(two)
    assert {one: 1}[two] == 1
    assert one != signature(torch.ones(2), 4)
    assert one != "another kind of key"


def test_it_reads_as_the_call_that_it_stands_for() -> None:
    text = str(signature(torch.ones(1, 16, dtype=torch.long), 2.5, mask=None, use=True))
    assert text == "x=int64[1, 16]@cpu, scale=2.5, use=True"
    with torch.autocast("cpu"):
        assert "autocast torch.bfloat16" in str(signature(torch.ones(1)))
    assert str(signature(object())) == "x=<object>"


def test_what_differs_is_said_in_words() -> None:
    base = signature(torch.ones(2), 3)
    assert differences(base, base) == []
    assert differences(signature(torch.ones(4), 3), base) == [
        "x: float32[4]@cpu instead of float32[2]@cpu"
    ]
    assert differences(signature([torch.ones(2)], 3), base) == [
        "the arguments are nested differently"
    ]
    with torch.inference_mode():
        found = differences(signature(torch.ones(2), 3), base)
    assert "inference: True instead of False" in found


def test_strides_alone_are_a_difference_that_is_told() -> None:
    found = differences(signature(torch.ones(2, 2).t()), signature(torch.ones(2, 2)))
    assert found == ["x: float32[2, 2]@cpu with strides [1, 2] instead of float32[2, 2]@cpu"]
