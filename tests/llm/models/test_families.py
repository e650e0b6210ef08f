"""Families: every architecture computes what transformers computes, however it is fed."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from llm.models.conftest import Family, token_ids
from llm.paged_model import PAGE_TOKENS, PagedModel

# Float32 sums in another order; the logits are of order 1 to 10.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
LENGTHS = (1, 16, 37, 3, 15)


def test_packed_prompts_of_odd_lengths_give_the_logits_of_transformers(family: Family) -> None:
    model = PagedModel.load(family.folder)
    prompts = [token_ids(length, seed) for seed, length in enumerate(LENGTHS)]
    found = model.prefill([(row, 0, ids) for row, ids in enumerate(prompts)])
    for mine, ids in zip(found, prompts, strict=True):
        assert_close(mine, family.logits(ids), **CLOSE)


def test_a_prompt_in_chunks_gives_the_logits_of_the_whole(family: Family) -> None:
    model = PagedModel.load(family.folder)
    ids, other = token_ids(70, 1), token_ids(9, 2)
    pieces, at = [], 0
    for count in (1, 16, 22, 31):
        # Another prompt's first chunk is packed before it, so its rows do not begin at 0.
        both = [(100 + at, 0, other), (0, at, ids[at : at + count])]
        pieces.append(model.prefill(both)[1])
        at += count
    assert_close(torch.cat(pieces), family.logits(ids), **CLOSE)


def test_decoding_over_page_edges_gives_the_logits_of_transformers(family: Family) -> None:
    model = PagedModel.load(family.folder)
    sequences = [token_ids(56, 3), token_ids(56, 4), token_ids(56, 5)]
    starts = (1, PAGE_TOKENS - 1, PAGE_TOKENS)
    model.prefill([(row, 0, sequences[row][: starts[row]]) for row in range(3)])
    expected = [family.logits(ids) for ids in sequences]
    for step in range(PAGE_TOKENS + 3):
        at = [start + step for start in starts]
        rows = [(row, at[row], sequences[row][at[row]]) for row in range(3)]
        found = model.decode([rows[0], None, *rows[1:], None])
        for row, mine in zip(range(3), found[[0, 2, 3]], strict=True):
            assert_close(mine, expected[row][at[row]], **CLOSE)


def test_a_row_has_the_same_bits_alone_in_company_and_beside_a_longer_one(family: Family) -> None:
    ids, long = token_ids(40, 6), token_ids(300, 7)
    alone, crowd = PagedModel.load(family.folder), PagedModel.load(family.folder)
    whole = alone.prefill([(0, 0, ids[:39])])[0]
    packed = [(1, 0, long), (0, 0, ids[:7]), (2, 0, long[:33])]
    first = crowd.prefill(packed, tokens_wide=400, pages_wide=21)[1]
    second = crowd.prefill([(0, 7, ids[7:39]), (3, 0, long[:5])])[0]
    assert torch.equal(torch.cat((first, second)), whole)

    single = alone.decode([(0, 39, ids[39])])[0]
    company = [(1, 300, 5), None, (0, 39, ids[39]), *[(2, 33, 8)], *[None] * 30]
    assert torch.equal(crowd.decode(company, pages_wide=25)[2], single)


def test_a_token_has_the_same_bits_prefilled_and_decoded(family: Family) -> None:
    ids = token_ids(33, 8)
    prefilled, decoded = PagedModel.load(family.folder), PagedModel.load(family.folder)
    expected = prefilled.prefill([(0, 0, ids)])[0]
    decoded.prefill([(0, 0, ids[:20])])
    found = [decoded.decode([(0, at, ids[at])])[0] for at in range(20, 33)]
    assert torch.equal(torch.stack(found), expected[20:])


def test_attention_by_torchs_fused_operator_agrees(family: Family) -> None:
    model = PagedModel.load(family.folder, is_invariant=False)
    ids = token_ids(50, 9)
    expected = family.logits(ids)
    assert_close(model.prefill([(0, 0, ids[:49])])[0], expected[:49], **CLOSE)
    found = model.decode([None, (0, 49, ids[49])], pages_wide=9)
    assert_close(found[1], expected[49], **CLOSE)
    assert torch.isfinite(found[0]).all()
