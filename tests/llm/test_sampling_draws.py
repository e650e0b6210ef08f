"""Draws: a hash of seed, position and token gives each token its noise, and the best one wins."""

from __future__ import annotations

import torch

from llm.sampling_rows import chi_square
from ostinato.llm.sampling_draws import (
    gumbel,
    hash_position,
    hash_seed,
    hash_tokens,
    noise,
    odds,
    race,
)

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def split_mix(seed: int, calls: int) -> int:
    """SplitMix64 as its authors wrote it, in plain numbers: the value of the n-th call."""
    state = (seed + calls * GOLDEN) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def low_bias(value: int, between: int) -> int:
    """Ettinger's mixer as published, in plain numbers, with a second key between its products."""
    value = ((value ^ (value >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    value ^= between
    value = ((value ^ (value >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return value ^ (value >> 15)


def keys(seeds: list[int], positions: list[int]) -> torch.Tensor:
    streams = torch.tensor([hash_seed(seed) for seed in seeds])
    return hash_position(streams, torch.tensor(positions))


def parts(bits: torch.Tensor) -> torch.Tensor:
    """32 bits as numbers in [0, 1)."""
    return bits.double() * 2.0**-32


def test_the_hash_is_split_mix_64() -> None:
    assert split_mix(1234567, 1) == 6457827717110365317  # from the authors' reference program
    assert hash_seed(1234567) & MASK == split_mix(1234567, 1)


def test_the_key_of_a_position_is_its_value_in_the_stream() -> None:
    for seed, position in ((0, 1), (7, 5), (-3, 100), (2**64 - 1, 131071)):
        value = split_mix(hash_seed(seed) & MASK, position)
        assert keys([seed], [position]).item() & MASK == value


def test_a_token_mixes_its_id_with_both_halves_of_the_key() -> None:
    key = keys([5], [9])
    lower, upper = key.item() & 0xFFFFFFFF, (key.item() & MASK) >> 32
    expected = [low_bias(token ^ lower, upper) for token in range(50)]
    assert hash_tokens(key, 50)[0].tolist() == expected


def test_a_negative_seed_is_the_seed_that_has_the_same_bits() -> None:
    assert hash_seed(-1) == hash_seed(2**64 - 1)


def test_the_bits_are_uniform_along_tokens_positions_and_seeds() -> None:
    count = 20000
    for bits in (
        hash_tokens(keys([0], [1]), count)[0],
        hash_tokens(keys([2**63], [77]), count)[0],
        hash_tokens(keys([1] * count, list(range(1, count + 1))), 4)[:, 3],
        hash_tokens(keys(list(range(count)), [6] * count), 2)[:, 0],
    ):
        drawn = parts(bits)
        counts = torch.histc(drawn.float(), 100, 0, 1)
        assert chi_square(counts, torch.full((100,), count / 100)) < 4
        ordered = drawn.sort().values
        gap = (ordered - (torch.arange(count) + 0.5) / count).abs().max()
        assert gap < 1.95 / count**0.5  # Kolmogorov and Smirnov at one in a thousand


def test_the_bits_of_neighbours_are_unrelated() -> None:
    count = 20000
    grid = parts(hash_tokens(keys(list(range(150)), list(range(150, 0, -1))), count))
    along = parts(hash_tokens(keys([3] * count, list(range(count))), 2))
    for here, beside in (
        (grid[0, :-1], grid[0, 1:]),
        (grid[1], grid[2]),
        (along[:-1, 0], along[1:, 0]),
        (along[:, 0], along[:, 1]),
    ):
        cells = (here * 10).long() * 10 + (beside * 10).long()
        expected = torch.full((100,), len(cells) / 100)
        assert chi_square(torch.bincount(cells, minlength=100), expected) < 4


def test_which_of_equal_tokens_wins_is_even_over_a_large_vocabulary() -> None:
    tokens, draws = 3000, 6000
    winners = []
    for first in range(0, draws, 1000):
        streams = torch.tensor([hash_seed(11)] * 1000)
        winners.append(noise(streams, torch.arange(first, first + 1000), tokens).argmax(-1))
    counts = torch.bincount(torch.cat(winners) // 30, minlength=100)
    assert chi_square(counts, torch.full((100,), draws / 100)) < 4


def test_noise_is_the_inverse_of_gumbels_distribution_also_in_its_tail() -> None:
    chance = torch.tensor([2.0**-33, 1e-9, 1e-6, 1e-3, 0.031, 0.032, 0.3, 0.632, 0.9, 0.999999])
    exact = -(-(-chance.double()).log1p()).log()
    torch.testing.assert_close(gumbel(chance).double(), exact, rtol=1e-6, atol=1e-6)
    assert gumbel(torch.tensor([1.0])).isfinite().all()


def test_a_barred_token_stays_barred_at_any_temperature() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 3.0]]).expand(5, -1)
    temperature = torch.tensor([0.0, 1e-45, 1.0, 1e38, torch.inf])
    run = race(logits, temperature, torch.zeros(5, 3))
    assert run[:, 0].tolist() == [-torch.inf] * 5
    assert not run.isnan().any()
    assert (run[:, 2] > run[:, 1]).all()


def test_odds_are_shares_of_the_likeliest_in_units_of_two_to_the_minus_34() -> None:
    share = torch.tensor([[1.0, 0.5, 2.0**-34, 2.0**-35, 0.0]])
    assert odds(share).tolist() == [[1 << 34, 1 << 33, 1, 0, 0]]
