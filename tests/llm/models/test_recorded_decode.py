"""Recorded decode: one recorded step serves every position, page and length."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.testing import assert_close

from llm.models.conftest import Family, token_ids
from llm.paged_model import DecodeStep, PagedModel
from ostinato import Outcome, graphed
from ostinato.llm.models import load_weights


@torch.inference_mode()
def test_a_recorded_step_replays_right_at_positions_and_pages_it_was_not_recorded_at(
    family: Family,
) -> None:
    model = PagedModel.load(family.folder)
    sequences = [token_ids(60, 1), token_ids(60, 2)]
    starts = (3, 14)
    model.prefill([(row, 0, sequences[row][: starts[row]]) for row in range(2)])
    expected = [family.logits(ids) for ids in sequences]
    fixed = DecodeStep(model, [None] * 4, pages_wide=4)
    step = graphed(fixed, backend="tape", outputs="owned")
    for count in range(40):
        at = [start + count for start in starts]
        # Rows change places, so a step that kept a row's page table would be found out.
        rows = [None, *((row, at[row], sequences[row][at[row]]) for row in range(2)), None]
        if count % 2:
            rows = [rows[2], None, rows[1], None]
        now = DecodeStep(model, rows, pages_wide=4)
        for name in ("tokens_B", "positions_B", "lengths_B", "pages_BP"):
            getattr(fixed, name).copy_(getattr(now, name))
        found = step()
        for place, row in enumerate(rows):
            if row is not None:
                assert_close(found[place], expected[row[0]][row[1]], rtol=1e-4, atol=1e-4)
    decision = step.last
    assert decision is not None
    assert decision.outcome is Outcome.REPLAYED
    assert step.report().replays >= 37


@torch.inference_mode()
def test_swapped_weights_are_seen_by_a_step_recorded_before(llama_folder: Path) -> None:
    model = PagedModel.load(llama_folder)
    ids = token_ids(5, 1)
    model.prefill([(0, 0, ids)])
    fixed = DecodeStep(model, [(0, 5, 9)])
    step = graphed(fixed, backend="tape")
    before = [step() for _ in range(4)][-1]
    state = {name: value * 1.5 for name, value in model.decoder.destinations().items()}
    load_weights(model.decoder, state)
    after = step()
    assert step.last is not None
    assert step.last.outcome is Outcome.REPLAYED
    assert torch.equal(after, fixed())
    assert not torch.equal(after, before)
