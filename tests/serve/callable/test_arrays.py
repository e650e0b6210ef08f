"""Tensors as they travel: checked against what a model takes, cut into rows, read from numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ostinato.errors import UsageError
from ostinato.serve.callable.arrays import (
    ITEM_BYTES,
    Array,
    TensorSpec,
    cut_rows,
    from_numbers,
    kind_of,
    numbers,
    rows_of,
)

SPECS = {"x": TensorSpec("FP32", (-1, 2)), "n": TensorSpec("INT64", (-1,))}


def floats(rows: int) -> Array:
    return from_numbers("x", "FP32", (rows, 2), list(range(rows * 2)))


def ints(rows: int) -> Array:
    return from_numbers("n", "INT64", (rows,), list(range(rows)))


def test_the_rows_of_a_request_are_those_of_its_inputs() -> None:
    assert rows_of({"x": floats(3), "n": ints(3)}, SPECS) == 3


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"x": floats(3)}, "OST6051"),
        ({"x": floats(3), "n": ints(3), "m": ints(3)}, "OST6051"),
        ({"x": floats(3), "n": ints(2)}, "OST6051"),
        ({"x": ints(3), "n": ints(3)}, "OST6050"),
        ({"x": Array("FP32", (3, 3), bytes(36)), "n": ints(3)}, "OST6050"),
        ({"x": Array("FP32", (3, 2, 1), bytes(24)), "n": ints(3)}, "OST6050"),
        ({"x": Array("FP32", (3, 2), bytes(23)), "n": ints(3)}, "OST6050"),
        ({"x": Array("FP32", (0, 2), b""), "n": Array("INT64", (0,), b"")}, "OST6050"),
        ({"x": Array("FP32", (-3, -2), bytes(24)), "n": ints(3)}, "OST6050"),
    ],
)
def test_a_request_unlike_the_metadata_is_refused(inputs: dict[str, Array], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        rows_of(inputs, SPECS)
    assert caught.value.code == code


def test_requests_share_a_batch_if_all_sizes_but_the_rows_are_equal() -> None:
    assert kind_of({"x": floats(3)}) == kind_of({"x": floats(1)})
    assert kind_of({"x": floats(3)}) != kind_of({"x": Array("FP32", (3, 3), b"")})


def test_rows_are_cut_apart() -> None:
    one, two = cut_rows(floats(3), (1, 2))
    assert numbers(one) == [0, 1]
    assert (two.shape, numbers(two)) == ((2, 2), [2, 3, 4, 5])


@pytest.mark.parametrize("datatype", [*ITEM_BYTES])
def test_numbers_come_back_as_they_went_in(datatype: str) -> None:
    sent = [[True, False], [True, True]] if datatype == "BOOL" else [[1, 0], [2, 3]]
    array = from_numbers("x", datatype, (2, 2), sent)
    assert len(array.data) == 4 * ITEM_BYTES[datatype]
    assert numbers(array) == [value for row in sent for value in row]


def test_bfloat16_is_rounded_as_torch_rounds_it() -> None:
    values = [
        1.0,
        -2.7182818,
        3.0e38,
        1e-40,
        65504.0,
        float("inf"),
        float("nan"),
        1.00390625,
        1.01171875,
    ]
    array = from_numbers("x", "BF16", (len(values),), values)
    ours = torch.frombuffer(bytearray(array.data), dtype=torch.bfloat16)
    theirs = torch.tensor(values).to(torch.bfloat16)
    assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))
    assert np.array_equal(numbers(array), theirs.float().tolist(), equal_nan=True)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("INT8", [300, 1]),
        ("UINT8", [-1, 1]),
        ("INT32", [1.5, 2]),
        ("FP32", ["1", "2"]),
        ("FP32", [1, None]),
        ("FP32", [[1, 2], [3]]),
        ("FP32", [1, 2, 3]),
        ("FP32", {"a": 1}),
        ("INT64", [2**70, 1]),
        ("INT64", [float("nan"), 1]),
        ("FP16", [1e9, 1]),
        ("FP33", [1, 2]),
        ("INT64", [True, False]),
        ("INT64", [1, True]),
        ("UINT8", [[1], [True]]),
        ("FP32", [0.5, True]),
        ("BF16", [True, True]),
        ("BOOL", [1, 0]),
        ("BOOL", [True, 0]),
        ("BOOL", [[True], [0.0]]),
    ],
)
def test_what_is_not_of_the_datatype_is_refused(datatype: str, values: object) -> None:
    with pytest.raises(UsageError) as caught:
        from_numbers("x", datatype, (2,), values)
    assert caught.value.code == "OST6050"


@pytest.mark.parametrize(
    ("datatype", "shape"),
    [
        ("FP31", (-1,)),
        ("FP32", (3,)),
        ("FP32", ()),
        ("FP32", -1),
        ("FP32", "-1"),
        ("FP32", (-1, "4")),
        ("FP32", (-1, 4.0)),
        ("FP32", (-1, -2)),
        ("FP32", (-1, None)),
        (["FP32"], (-1,)),
        (float, (-1,)),
    ],
)
def test_a_spec_that_cannot_be_served_is_refused(datatype: Any, shape: Any) -> None:
    with pytest.raises(UsageError) as caught:
        TensorSpec(datatype, shape)
    assert caught.value.code == "OST6052"
