"""Numbers that are none, or out of all proportion: refused by name before a model takes memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from llm.small_engine import OPTIONS, config, engine, greedy
from ostinato.errors import OstinatoError, WrongTypeError
from ostinato.llm.config import _COUNTS, EngineConfig
from ostinato.llm.loading import load
from ostinato.llm.resident_state import ResidentState, row_bytes

COUNTS = sorted(_COUNTS)
NO_COUNTS = (
    *(math.nan, math.inf, -math.inf, 2.5, 1e300, True, False, "x", "10", b"10", [], {}, 3j),
    *(np.float64(3), np.bool_(True), np.array([3]), torch.tensor(3)),
)
HUGE = (2**63 - 1, 2**31)
BEYOND = (2**64, 10**30, 10**5000)
REFUSED = {
    "max_batch": "OST5034",
    "max_model_len": "OST5032",
    "page_tokens": "OST5034",
    "prefill_tokens": "OST5031",
    "steps_per_launch": "OST5031",
    "most_logprobs": "OST5031",
}
"""By which code a huge number is refused; what is not named here has no bound but what 64 bits
hold."""


@pytest.mark.parametrize("option", [*COUNTS, "kv_memory"])
@pytest.mark.parametrize("value", BEYOND, ids=["2**64", "10**30", "10**5000"])
def test_a_number_beyond_64_bits_is_refused_by_name(option: str, value: int) -> None:
    with pytest.raises(OstinatoError, match=rf"{option} must be at most \d+") as caught:
        EngineConfig.read({"model": "m", option: value})
    assert caught.value.code == "OST5031"
    assert len(str(caught.value)) < 300


def test_an_amount_beyond_64_bits_is_refused_as_text_too() -> None:
    with pytest.raises(OstinatoError, match=r"at most 9223372036854775807 bytes, got '9999999TiB'"):
        EngineConfig.read({"model": "m", "kv_memory": "9999999TiB"})


@pytest.mark.parametrize("option", COUNTS)
@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_what_is_no_whole_number_is_refused(option: str, value: Any) -> None:
    with pytest.raises(WrongTypeError, match=f"{option} must be a whole number") as caught:
        EngineConfig.read({"model": "m", option: value})
    assert caught.value.code == "OST5031"


@pytest.mark.parametrize("value", [v for v in NO_COUNTS if v != "10"], ids=repr)
def test_what_is_no_amount_of_memory_is_refused(value: Any) -> None:
    with pytest.raises(OstinatoError, match="kv_memory must be an amount of bytes") as caught:
        EngineConfig.read({"model": "m", "kv_memory": value})
    assert caught.value.code == "OST5031"


@pytest.mark.parametrize("option", [*(each for each in COUNTS if each != "seed"), "kv_memory"])
@pytest.mark.parametrize("value", [-1, -(10**30), -(2**63)])
def test_a_negative_number_is_refused(option: str, value: int) -> None:
    with pytest.raises(OstinatoError, match=option) as caught:
        EngineConfig.read({"model": "m", option: value})
    assert caught.value.code == "OST5031"


@pytest.mark.parametrize("option", sorted(REFUSED))
@pytest.mark.parametrize("value", HUGE)
def test_a_huge_number_is_refused_before_the_model_takes_memory(
    tiny: Path, option: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.llm.loading.build", lambda *_, **__: pytest.fail("it was built"))
    options = {**OPTIONS, "kv_memory": "auto", "model": tiny, option: value}
    with pytest.raises(OstinatoError) as caught:
        load(EngineConfig.read(options))
    assert caught.value.code == REFUSED[option]


@pytest.mark.parametrize("option", [*(each for each in COUNTS if each not in REFUSED), "kv_memory"])
@pytest.mark.parametrize("value", HUGE)
def test_a_huge_number_that_bounds_nothing_is_taken(tiny: Path, option: str, value: int) -> None:
    with engine(tiny, **{option: value}) as made:
        assert len(made.ask([5, 6, 7], greedy(2, ignore_eos=True)).result(120).token_ids) == 2


def test_a_huge_number_is_refused_with_the_number_and_what_is_enough(tiny: Path) -> None:
    with pytest.raises(OstinatoError, match="at most 1048576") as caught:
        load(config(tiny, prefill_tokens=2**40))
    assert str(2**40) in str(caught.value)
    assert "pass at most 1048576, or leave it out" in caught.value.remedy


@pytest.mark.parametrize("logprobs", [0, 3])
def test_the_memory_of_a_row_is_told_before_it_is_taken(logprobs: int) -> None:
    sizes = {"vocabulary": 99, "pages": 5, "page_tokens": 16, "ring": 4}
    state = ResidentState.empty(7, **sizes, most_logprobs=logprobs, device=torch.device("cpu"))
    sampling, ring = state.sampling, state.logprobs
    tensors = [
        *(sampling.whole_BF, sampling.real_BF, sampling.history_BW, sampling.counts_BV),
        *(sampling.allowed_BX, state.place_BF, state.output_BF, state.pages_BP),
        *(() if ring is None else (ring.chosen_BK, ring.ids_BKN, ring.top_BKN)),
    ]
    assert 7 * row_bytes(**sizes, logprobs=logprobs) == sum(each.nbytes for each in tensors)
