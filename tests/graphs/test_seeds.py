"""Seeds: a watched generator is marked, and nobody who saves or restores a state may notice."""

from __future__ import annotations

import torch

from ostinato.graphs.seeds import SeedWatch, set_state, state_of


def test_a_watched_generator_draws_as_before_and_keeps_its_seed() -> None:
    mine, twin = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    watch = SeedWatch([mine, mine])
    watch.begin()
    assert torch.equal(torch.rand(5, generator=mine), torch.rand(5, generator=twin))
    assert not watch.has_seen_one
    watch.end()
    assert mine.initial_seed() == 5
    assert torch.equal(mine.get_state(), twin.get_state())


def test_a_seed_of_64_bits_comes_back() -> None:
    own = torch.Generator().manual_seed(-1)
    seed = own.initial_seed()
    watch = SeedWatch([own])
    watch.begin()
    watch.end()
    assert own.initial_seed() == seed


def test_the_same_seed_again_is_seen_and_stays() -> None:
    own = torch.Generator().manual_seed(5)
    watch = SeedWatch([own])
    watch.begin()
    own.manual_seed(5)
    assert watch.has_seen_one
    watch.end()
    assert torch.equal(own.get_state(), torch.Generator().manual_seed(5).get_state())


def test_two_watches_at_once_do_not_take_each_other_for_a_seed() -> None:
    own = torch.Generator().manual_seed(5)
    one, other = SeedWatch([own]), SeedWatch([own])
    one.begin()
    other.begin()
    one.end()
    assert not other.has_seen_one
    other.end()
    assert own.initial_seed() == 5


def test_a_state_saved_or_restored_meanwhile_has_no_mark_and_takes_none_away() -> None:
    own = torch.Generator().manual_seed(5)
    before = own.get_state()
    watch = SeedWatch([own])
    watch.begin()
    assert torch.equal(state_of(own), before)
    torch.rand(3, generator=own)
    set_state(own, before)
    assert not watch.has_seen_one
    watch.end()
    assert torch.equal(own.get_state(), before)
