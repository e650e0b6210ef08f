"""Choosing a token from tiles gives what sorting the whole vocabulary would give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from llm.kernels.sampling_case import chosen, expected, running

pytest.importorskip("triton")

from ostinato.llm.kernels.head_tiles import logit_tiles
from ostinato.llm.kernels.settling import settle
from ostinato.llm.kernels.weighing import LISTED, weigh
from ostinato.llm.resident_state import Ending

VOCABULARY = 1009
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 1e-30, "top_p": 0.5},
    {"top_k": 1},
    {"top_k": 5},
    {"temperature": 1.6, "top_k": 50},
    {"top_k": 2000},
    {"top_p": 0.02},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 2.0, "top_p": 0.6, "min_p": 0.01},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 7, "top_p": 0.5},
    {"top_k": 900, "top_p": 0.8},
    {"top_k": 40, "min_p": 0.02},
    {"top_k": 20, "top_p": 0.9, "min_p": 0.05},
]


def agree(logits: Tensor, options: list[dict[str, Any]], seed: int = 0) -> list[int]:
    device = logits.device
    seeds = [seed + row for row in range(len(options))]
    state = running(options, logits.shape[1], device, seeds=seeds)
    wanted = expected(logits, state)
    found = chosen(logits, state)
    assert found == wanted
    return found


@pytest.mark.parametrize("scale", [0.05, 1.5, 6.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_filter_gives_the_tokens_of_plain_torch(
    scale: float, dtype: torch.dtype, kernel_device: torch.device
) -> None:
    logits = (torch.randn(len(OPTIONS), VOCABULARY) * scale).to(kernel_device, dtype)
    agree(logits, OPTIONS)


@pytest.mark.parametrize("options", [{"top_p": 0.05}, {"top_p": 0.3, "min_p": 0.001}], ids=str)
def test_a_winner_that_the_mass_leaves_out_gives_way_until_one_stays(
    options: dict[str, Any], kernel_device: torch.device
) -> None:
    logits = (torch.randn(1, 600) / 8).expand(12, -1).to(kernel_device)
    found = agree(logits, [options] * 12)
    assert len(set(found)) > 3


def test_among_the_top_k_the_mass_leaves_out_some(kernel_device: torch.device) -> None:
    logits = (torch.randn(1, 300) / 8).expand(12, -1).to(kernel_device)
    agree(logits, [{"top_k": 20, "top_p": 0.15}] * 12)


@pytest.mark.parametrize("vocabulary", [3, 127, 128, 129, 1024, 1025, 2500])
def test_any_size_of_vocabulary_does(vocabulary: int, kernel_device: torch.device) -> None:
    options = [{"top_k": 2}, {"top_p": 0.7}, {}, {"temperature": 0}]
    logits = torch.randn(4, vocabulary, device=kernel_device) * 2
    agree(logits, options)


def test_barred_tokens_are_never_chosen(kernel_device: torch.device) -> None:
    logits = torch.full((len(OPTIONS), 300), -torch.inf, device=kernel_device)
    logits[:, [5, 77, 290]] = torch.tensor([1.0, 0.5, 0.9], device=kernel_device)
    assert set(agree(logits, OPTIONS)) <= {5, 77, 290}


def test_tokens_that_tie_at_an_edge_stay_together(kernel_device: torch.device) -> None:
    logits = torch.zeros(8, 400, device=kernel_device)
    logits[:, 3] = 1.0
    logits[:, 200:230] = 0.5
    for options in ({"top_k": 2}, {"top_k": 2, "top_p": 0.9}, {"top_p": 0.01, "temperature": 9.0}):
        found = set(agree(logits, [options] * 8))
        assert found & set(range(205, 230))
        assert found <= {3, *range(200, 230)}


def test_candidates_that_find_no_room_on_the_list_are_found_all_the_same(
    kernel_device: torch.device,
) -> None:
    vocabulary = 3000
    logits = torch.rand(3, vocabulary) * 0.9 + 2.0  # of the k-th only the lower digits differ
    logits[:, 100:2900] = 3.0  # equal, and more than there is room for
    logits[:, 2950] = 5.0
    logits = logits.to(kernel_device)
    options = [{"top_k": 3}, {"top_k": 3, "top_p": 0.4}, {"top_k": 3, "min_p": 0.05}]
    state = running(options, vocabulary, kernel_device)
    weighed = weigh(logits, logit_tiles(logits, state, draws=True), state)
    shares = weighed.found_BS.shape[1]
    assert (weighed.found_BS.amax(1) > LISTED // shares).all()
    agree(logits, options)


def test_rows_with_broken_logits_end_in_error_and_give_nothing(kernel_device: torch.device) -> None:
    options = [{}, {"temperature": 0}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 0}]
    logits = torch.randn(5, 300, device=kernel_device)
    logits[0, 3], logits[1, 299] = torch.nan, torch.inf
    logits[2], logits[3, 0] = -torch.inf, torch.nan
    state = running(options, 300, kernel_device)
    before = state.place_BF.clone()
    chosen(logits, state)
    assert state.ending.tolist() == [int(Ending.ERROR)] * 4 + [int(Ending.RUNNING)]
    assert state.count.tolist() == [0, 0, 0, 0, 1]
    assert torch.equal(state.place_BF[:4], before[:4])
    assert state.token[4] == logits[4].argmax()


def test_the_place_of_a_token_is_told_and_the_spare_one_of_who_gives_none(
    kernel_device: torch.device,
) -> None:
    logits = torch.randn(3, 300, device=kernel_device)
    logits[1, 3] = torch.nan
    state = running([{"temperature": 0}] * 3, 300, kernel_device)
    state.output_BF[0, 0] = 2
    state.output_BF[2, 1] = int(Ending.EMPTY)
    leaders = logit_tiles(logits, state, draws=False)
    _, place = settle(leaders, state, logits_BV=None, weighed=None, keeps_history=False)
    assert place.tolist() == [2, 3, 3]


def test_a_stop_token_wins_over_the_last_token_allowed(kernel_device: torch.device) -> None:
    logits = torch.zeros(4, 300, device=kernel_device)
    logits[:, 9] = 5.0
    state = running([{"temperature": 0}] * 4, 300, kernel_device)
    state.sampling.stop_ids[[1, 2], 3] = 9
    state.place_BF[2:, 2] = state.position[2:] + 1
    chosen(logits, state, draws=False)
    stands = [Ending.RUNNING, Ending.STOP, Ending.STOP, Ending.LENGTH]
    assert state.ending.tolist() == [int(each) for each in stands]
    assert state.ring[:, 0].tolist() == [9] * 4


def test_a_row_alone_and_in_company_chooses_the_same(kernel_device: torch.device) -> None:
    logits = torch.randn(len(OPTIONS), 500, device=kernel_device)
    seeds = list(range(len(OPTIONS)))
    together = chosen(logits, running(OPTIONS, 500, kernel_device, seeds=seeds))
    for row in range(0, len(OPTIONS), 3):
        alone = running(OPTIONS[row : row + 1], 500, kernel_device, seeds=[row])
        assert chosen(logits[row : row + 1], alone) == together[row : row + 1]


@pytest.mark.gpu
def test_a_gpu_chooses_what_plain_torch_does_over_a_large_vocabulary() -> None:
    device = torch.device("cuda:0")
    options = [OPTIONS[row % len(OPTIONS)] for row in range(64)]
    for scale in (0.5, 1.5, 4.0):
        logits = (torch.randn(64, 128256) * scale).to(device, torch.bfloat16)
        agree(logits, options)
