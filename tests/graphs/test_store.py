"""The store: what came too late, what is refused, what waits and for how long."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.graphs import Outcome, Reason, graphed
from ostinato.graphs.entry import Entry
from ostinato.graphs.store import Store
from ostinato.graphs.tree import LEAF


def entry_of(runner: Any) -> Entry:
    (entry,) = runner._store.entries()
    return entry


def recorded(device: torch.device) -> Any:
    runner = graphed(lambda x: x * 2, admit_after=1)
    runner(torch.ones(2, device=device))
    return runner


def test_a_recording_begun_before_a_change_comes_too_late(device: torch.device) -> None:
    store = Store(1 << 30, 1)
    runner = recorded(device)
    theirs = entry_of(runner)
    assert theirs.graph is not None
    entry = store.find_or_add(theirs.signature)
    before = store.epoch
    store.lose_all(Reason.WEIGHTS_MOVED)
    assert store.keep(entry, theirs.graph, before) is Reason.WEIGHTS_MOVED
    assert entry.graph is None
    assert store.keep(entry, theirs.graph, store.epoch) == []


def test_a_closed_store_takes_nothing_in(device: torch.device) -> None:
    store = Store(1 << 30, 1)
    theirs = entry_of(recorded(device))
    assert theirs.graph is not None
    entry = store.find_or_add(theirs.signature)
    store.close()
    assert store.keep(entry, theirs.graph, store.epoch) is Reason.CLOSED


def test_weights_that_move_while_a_recording_is_made_are_not_missed(
    device: torch.device,
) -> None:
    weights = [torch.full((1,), 1.0, device=device)]
    moves = iter([None, None, None, None, "now"])
    runner: Any = None

    def move(_: None) -> None:
        if next(moves, None) == "now":
            weights[0] = torch.full((1,), 5.0, device=device)
            runner._player.watches.over((), LEAF, runner._player)  # as another thread's call would

    hidden = map(move, itertools.repeat(None)).__next__

    def step(x: Tensor) -> Tensor:
        hidden()
        return x + weights[0]

    runner = graphed(step, admit_after=1)
    x = torch.zeros(1, device=device)
    assert runner(x).item() == 1.0
    assert weights[0].item() == 5.0
    for _ in range(6):
        assert runner(x).item() == 5.0
    assert runner.last is not None
    assert runner.last.outcome is Outcome.REPLAYED


def test_a_lost_recording_is_made_anew_at_once_then_ever_later(device: torch.device) -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    x = torch.ones(2, device=device)
    waits = []
    for _ in range(5):
        calls = 0
        while True:
            runner(x)
            calls += 1
            assert runner.last is not None
            if runner.last.outcome is Outcome.RECORDED:
                break
        waits.append(calls)
        runner.invalidate("again")
    assert waits == [1, 1, 2, 4, 8]


def test_a_refused_signature_is_reconsidered_when_something_changes(device: torch.device) -> None:
    signature = entry_of(recorded(device)).signature
    store = Store(1 << 30, 1)
    entry = store.find_or_add(signature)
    entry.calls = 3
    entry.refuse(Reason.HOST_SYNC, "a line")
    store.lose_all(Reason.ATTRIBUTE_CHANGED)
    assert (entry.refusal, entry.waiting_for, entry.admit_at) == (None, Reason.HOST_SYNC, 3)
    entry.refuse(Reason.HOST_SYNC, "a line")
    store.lose_all(Reason.ATTRIBUTE_CHANGED)
    store.lose_all(Reason.ATTRIBUTE_CHANGED)  # waiting already: no longer for that
    assert entry.admit_at == 5


@pytest.mark.parametrize("found_first", [True, False])
def test_an_entry_forgotten_while_it_was_recorded_is_kept_once(
    found_first: bool, device: torch.device
) -> None:
    theirs = entry_of(recorded(device))
    assert theirs.graph is not None
    store = Store(1 << 30, 1)
    entry = store.find_or_add(theirs.signature)
    store._forget_one(store._entries)
    if found_first:
        store.find_or_add(theirs.signature)
        assert store.keep(entry, theirs.graph, store.epoch) is Reason.BEING_RECORDED
        assert store.graphs() == []
    else:
        assert store.keep(entry, theirs.graph, store.epoch) == []
        assert store.graphs() == [theirs.graph]
