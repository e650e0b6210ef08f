"""Where two results part is found, and how close the two tokens were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ostinato.hf import first_divergence

Make = Callable[..., Any]


def test_equal_results_do_not_diverge(tiny: Make, prompt: Make) -> None:
    model = tiny()
    tokens = model.generate(**prompt(2, 9), max_new_tokens=9)
    assert first_divergence(model, tokens, tokens.clone()) is None


def test_the_earliest_difference_of_all_rows_is_reported_with_its_gap(
    tiny: Make, prompt: Make
) -> None:
    model = tiny()
    inputs = prompt(3, 12)
    theirs = model.generate(**inputs, max_new_tokens=9, eos_token_id=None)
    ours = theirs.clone()
    ours[0, 19] = (ours[0, 19] + 1) % 97
    ours[2, 15] = (ours[2, 15] + 1) % 97
    found = first_divergence(model, ours, theirs, attention_mask=inputs["attention_mask"])
    assert found is not None
    assert (found.row, found.column) == (2, 15)
    assert (found.ours, found.theirs) == (int(ours[2, 15]), int(theirs[2, 15]))
    with torch.no_grad():
        logits = model(theirs[2:3, 4:15]).logits[0, -1]
    assert found.logit_gap == pytest.approx(
        float(logits[found.theirs] - logits[found.ours]), abs=1e-4
    )
    assert found.logit_gap > 0, "greedy took the larger"
    assert "row 2, column 15" in str(found)


def test_a_result_that_ended_earlier_diverges_where_it_ended(tiny: Make, prompt: Make) -> None:
    model = tiny()
    tokens = model.generate(**prompt(1, 9), max_new_tokens=9, eos_token_id=None)
    found = first_divergence(model, tokens[:, :14], tokens)
    assert found is not None
    assert (found.column, found.ours, found.theirs) == (14, None, int(tokens[0, 14]))
    assert "ended" in str(found)
