"""Draws: a hash of seed and position picks a token by exact sums of whole-number odds."""

from __future__ import annotations

import torch

from llm.sampling_rows import chi_square
from ostinato.llm.sampling_draws import draw, hash_seed, odds, uniform

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def split_mix(seed: int, calls: int) -> int:
    """SplitMix64 as its authors wrote it, in plain numbers: the value of the n-th call."""
    state = (seed + calls * GOLDEN) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def numbers(seeds: list[int], positions: list[int]) -> torch.Tensor:
    streams = torch.tensor([hash_seed(seed) for seed in seeds])
    return uniform(streams, torch.tensor(positions))


def test_the_hash_is_split_mix_64() -> None:
    assert split_mix(1234567, 1) == 6457827717110365317  # from the authors' reference program
    assert hash_seed(1234567) & MASK == split_mix(1234567, 1)


def test_the_number_of_a_position_is_the_top_of_the_streams_value() -> None:
    for seed, position in ((0, 1), (7, 5), (-3, 100), (2**64 - 1, 131071)):
        value = split_mix(hash_seed(seed) & MASK, position)
        assert numbers([seed], [position]).item() == (value >> 24) * 2.0**-40


def test_a_negative_seed_is_the_seed_that_has_the_same_bits() -> None:
    assert hash_seed(-1) == hash_seed(2**64 - 1)


def test_numbers_along_a_row_are_uniform() -> None:
    for seed in (0, 1, 2**63):
        drawn = numbers([seed] * 20000, list(range(1, 20001)))
        counts = torch.histc(drawn.float(), 100, 0, 1)
        assert chi_square(counts, torch.full((100,), 200.0)) < 4
        ordered = drawn.sort().values
        gap = (ordered - (torch.arange(20000) + 0.5) / 20000).abs().max()
        assert gap < 1.95 / 20000**0.5  # Kolmogorov and Smirnov at one in a thousand


def test_numbers_of_neighbouring_seeds_at_one_position_are_uniform_and_unrelated() -> None:
    for position in (1, 2, 1000):
        here = numbers(list(range(20000)), [position] * 20000)
        beside = numbers(list(range(20000)), [position + 1] * 20000)
        cells = (here * 10).long() * 10 + (beside * 10).long()
        assert chi_square(torch.bincount(cells, minlength=100), torch.full((100,), 200.0)) < 4
        pairs = (here[:-1] * 10).long() * 10 + (here[1:] * 10).long()
        assert chi_square(torch.bincount(pairs, minlength=100), torch.full((100,), 199.99)) < 4


def test_neighbouring_seeds_are_not_shifted_copies_of_one_stream() -> None:
    seen = set(numbers([0] * 1000, list(range(1000))).tolist())
    for seed in (1, 2, GOLDEN, 2 * GOLDEN):
        assert not seen & set(numbers([seed] * 1000, list(range(1000))).tolist())


def test_the_draw_finds_the_token_whose_stretch_holds_the_number() -> None:
    odds_BV = torch.tensor([[2, 0, 1, 1, 0]]).expand(5, -1)
    at = torch.tensor([0.0, 0.499, 0.5, 0.75, 1 - 2.0**-40], dtype=torch.float64)
    assert draw(odds_BV * 2**34, at).tolist() == [0, 0, 2, 3, 3]


def test_the_last_number_below_one_never_draws_past_the_last_token_that_has_odds() -> None:
    for vocabulary in (1, 3, 1000, 1 << 19):
        odds_BV = torch.full((1, vocabulary), 1 << 34)
        odds_BV[0, -1] = 0 if vocabulary > 1 else 1
        last = draw(odds_BV, torch.tensor([1 - 2.0**-40], dtype=torch.float64)).item()
        assert last == max(vocabulary - 2, 0)


def test_odds_are_shares_of_the_likeliest_in_units_of_two_to_the_minus_34() -> None:
    share = torch.tensor([[1.0, 0.5, 2.0**-34, 2.0**-35, 0.0]])
    assert odds(share).tolist() == [[1 << 34, 1 << 33, 1, 0, 0]]
