"""Our engine's rows: what floor they have, and what becomes of an engine that cannot be made."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.bench.decode.models import TINY
from ostinato.bench.decode.ours import Work, measure_ours
from ostinato.bench.decode.parts import Rates
from ostinato.bench.decode.rows import DecodeRow

WORK = Work(prompt=6, new=3, firsts=1, wholes=1)
LAYERS = 2 * (64 * 128 + 64 * 64 + 64 * 256 + 128 * 64)
"""Numbers of the toy's matrices."""
SCALES = 2 * (128 + 64 + 256 + 64)
"""One for each output of them."""
REST = 512 * 64 + 5 * 64
"""The head and the norms, which are never quantised."""


def rows(**options: Any) -> tuple[list[DecodeRow], dict[str, Any]]:
    facts: dict[str, Any] = {}
    found = measure_ours(
        "ostinato",
        "smollm2-135m",
        TINY,
        (1, 2),
        WORK,
        options={"device": "cpu", **options},
        rates=Rates(read_tb_s=1e-3),
        with_kernels=False,
        note=facts.update,
    )
    return list(found), facts


@pytest.mark.parametrize(
    ("quantize", "read_bytes"),
    [("none", 4 * (LAYERS + REST)), ("int8", LAYERS + 4 * (SCALES + REST))],
)
def test_the_floor_is_of_the_bytes_that_a_step_reads(quantize: str, read_bytes: int) -> None:
    found, facts = rows(quantize=quantize)
    assert [row.batch for row in found] == [1, 2]
    for row in found:
        assert row.error == ""
        assert row.floor_ms == pytest.approx(read_bytes / 1e9 * 1e3)  # at a thousandth of a TB/s
    assert facts["read_bytes"] == read_bytes


def test_an_engine_that_cannot_be_made_is_told_in_each_row() -> None:
    found, facts = rows(attention="none such")
    assert [row.batch for row in found] == [1, 2]
    assert all("none such" in row.error for row in found)
    assert facts == {}
