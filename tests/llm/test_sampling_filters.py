"""Filters keep the tokens that transformers' warpers keep, and draws follow its distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from llm.sampling_rows import chi_square, rows_of, tokens_at
from ostinato.llm.sampling import Level
from ostinato.llm.sampling_draws import hash_seed, noise, odds, race
from ostinato.llm.sampling_filters import stays

OPTIONS: list[dict[str, Any]] = [
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 400},
    {"top_p": 0.05},
    {"top_p": 0.6},
    {"top_p": 0.999},
    {"min_p": 0.03},
    {"min_p": 1.0},
    {"top_k": 30, "top_p": 0.7},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 0.4, "top_k": 20, "top_p": 0.8, "min_p": 0.01},
    {"temperature": 3.0, "top_p": 0.9, "min_p": 0.2},
]


def warped(logits_BV: Tensor, options: dict[str, Any]) -> Tensor:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(options.get("temperature", 1.0))])
    for name, warper in (
        ("top_k", TopKLogitsWarper),
        ("top_p", TopPLogitsWarper),
        ("min_p", MinPLogitsWarper),
    ):
        if name in options:
            warpers.append(warper(options[name]))
    return warpers(torch.empty(0), logits_BV)


def ours(logits_BV: Tensor, *options: dict[str, Any]) -> Tensor:
    def each(name: str, default: float) -> Tensor:
        given = torch.tensor([one.get(name, default) for one in options])
        return given.expand(len(logits_BV))

    scores = (logits_BV - logits_BV.amax(-1, keepdim=True)) / each("temperature", 1.0)[:, None]
    share = scores.exp()
    return stays(
        logits_BV,
        share,
        odds(share),
        top_k_B=each("top_k", 0).long(),
        top_p_B=each("top_p", 1.0).float(),
        min_p_B=each("min_p", 0.0).float(),
    )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_tokens_that_stay_are_those_of_transformers(options: dict[str, Any]) -> None:
    logits = torch.randn(64, 257) * 3
    assert torch.equal(ours(logits, options), warped(logits, options) > -torch.inf)


def test_switched_off_filters_keep_every_token() -> None:
    assert ours(torch.randn(8, 300) * 400, {}).all()


def test_tokens_that_tie_at_an_edge_stay_together() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    for options in ({"top_k": 2}, {"top_p": 0.5}):
        assert ours(logits, options).tolist() == [[True, True, True, True, False]]


def test_zeros_of_either_sign_tie() -> None:
    logits = torch.tensor([[0.0, -0.0, -1.0], [-1.0, -0.0, 0.0]])
    for options in ({"top_k": 1}, {"top_p": 0.1}):
        assert ours(logits, options).tolist() == [[True, True, False], [False, True, True]]


def test_logits_of_any_sign_and_size_are_told_apart() -> None:
    logits = torch.tensor([[3e38, 1.0, 1e-45, 0.0, -1e-45, -1.0, -3e38, -torch.inf]])
    for count in range(1, 9):
        kept = ours(logits, {"top_k": count, "temperature": 1e38})
        assert kept.tolist() == [[True] * count + [False] * (8 - count)]


def test_top_p_stops_at_the_token_that_makes_the_mass_whole() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    for top_p, kept in ((0.5, [True, False, False]), (0.501, [True, True, True])):
        assert ours(logits, {"top_p": top_p}).tolist() == [kept]
    assert (warped(logits, {"top_p": 0.5}) > -torch.inf).tolist() == [[True, False, False]]


def test_a_fraction_of_a_unit_of_mass_that_is_missing_is_missing() -> None:
    kept = stays(
        torch.tensor([[0.0, -1.0, -2.0]]),
        torch.tensor([[1.0, 0.5, 0.5]]),
        torch.tensor([[3, 2, 2]]),
        top_k_B=torch.tensor([0]),
        top_p_B=torch.tensor([0.5]),
        min_p_B=torch.tensor([0.0]),
    )
    assert kept.tolist() == [[True, True, False]]


def test_each_row_has_its_own_filters() -> None:
    logits = torch.randn(1, 200).expand(len(OPTIONS), -1) * 3
    together = ours(logits, *OPTIONS)
    for row, options in enumerate(OPTIONS):
        assert torch.equal(together[row], ours(logits[row : row + 1], options)[0])


@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
def test_draws_follow_transformers_distribution(options: dict[str, Any]) -> None:
    logits, draws = torch.randn(1, 97) * 2, 20000
    positions = torch.arange(1, draws + 1)
    stream = torch.tensor([hash_seed(3)])
    temperature = torch.tensor([options.get("temperature", 1.0)])
    run = race(logits, temperature, noise(stream, positions, 97))
    drawn = run.masked_fill(~ours(logits, options), -torch.inf).argmax(-1)
    expected = warped(logits, options)[0].double().softmax(-1) * draws
    counts = torch.bincount(drawn, minlength=97)
    assert counts[expected == 0].sum() == 0
    assert chi_square(counts, expected) < 4
    state = rows_of(options, vocabulary=97, seeds=[3])
    found = [tokens_at(logits, state, at, Level.CUT)[0] for at in range(1, 31)]
    assert found == drawn[:30].tolist()
