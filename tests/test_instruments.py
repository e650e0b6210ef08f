"""Instruments: listeners hear what they override, and cannot break what they watch."""

import logging
import subprocess
import sys

import pytest

from ostinato.instruments import (
    Captured,
    Dropped,
    Event,
    Instrument,
    Listeners,
    LogInstrument,
    RanEagerly,
    Replayed,
    Warned,
)

REPLAYED = Replayed(runner="f", graph_id="f#1", padded_rows=0)
EAGER = RanEagerly(runner="f", reason="host-sync", graph_id=None)
EVENTS: list[Event] = [
    Captured(runner="f", graph_id="f#1", seconds=0.1, bytes=8, nodes=3, recapture=False),
    REPLAYED,
    EAGER,
    Dropped(runner="f", graph_id="f#1", reason="over-budget", bytes=8),
    Warned(runner="f", code="attribute-changed", message="scale was 1, is 2"),
]


class HearsEverything(Instrument):
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def captured(self, event: Captured) -> None:
        self.heard.append(event)

    def replayed(self, event: Replayed) -> None:
        self.heard.append(event)

    def ran_eagerly(self, event: RanEagerly) -> None:
        self.heard.append(event)

    def dropped(self, event: Dropped) -> None:
        self.heard.append(event)

    def warned(self, event: Warned) -> None:
        self.heard.append(event)


class HearsReplays(Instrument):
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def replayed(self, event: Replayed) -> None:
        self.heard.append(event)


class Raises(Instrument):
    def __init__(self) -> None:
        self.calls = 0

    def replayed(self, event: Replayed) -> None:
        self.calls += 1
        raise RuntimeError("this listener is broken")


def test_every_event_reaches_the_method_of_its_name() -> None:
    listeners, ear = Listeners(), HearsEverything()
    listeners.add(ear)
    for event in EVENTS:
        listeners.emit(event)
    assert ear.heard == EVENTS


def test_only_overridden_methods_are_listened_to() -> None:
    listeners, ear = Listeners(), HearsReplays()
    listeners.add(ear)
    assert listeners.active_for(Replayed)
    assert not listeners.active_for(RanEagerly)
    for event in EVENTS:
        listeners.emit(event)
    assert ear.heard == [REPLAYED]


def test_an_instrument_that_overrides_nothing_leaves_everything_inactive() -> None:
    listeners = Listeners()
    listeners.add(Instrument())
    assert not listeners.active()


def test_adding_an_instrument_twice_is_adding_it_once() -> None:
    listeners, ear = Listeners(), HearsReplays()
    listeners.add(ear)
    listeners.add(ear)
    listeners.emit(REPLAYED)
    assert ear.heard == [REPLAYED]


def test_a_removed_instrument_hears_nothing_more() -> None:
    listeners, ear = Listeners(), HearsReplays()
    listeners.add(ear)
    listeners.remove(ear)
    listeners.remove(ear)
    listeners.emit(REPLAYED)
    assert ear.heard == []
    assert not listeners.active()


def test_an_instrument_that_raises_is_detached_and_logged_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listeners, broken, ear = Listeners(), Raises(), HearsReplays()
    listeners.add(broken)
    listeners.add(ear)
    listeners.emit(REPLAYED)
    listeners.emit(REPLAYED)
    assert broken.calls == 1
    assert ear.heard == [REPLAYED, REPLAYED]
    [record] = caplog.records
    assert record.name == "ostinato"
    assert "Raises raised in replayed and was detached" in record.getMessage()
    assert record.exc_info is not None


def test_a_log_record_carries_the_reason_the_recording_and_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listeners = Listeners()
    listeners.add(LogInstrument())
    with caplog.at_level(logging.INFO, logger="ostinato"):
        for event in EVENTS:
            listeners.emit(event)
    told = [(r.levelname, vars(r)["fallback_reason"], vars(r)["graph_id"]) for r in caplog.records]
    assert told == [
        ("INFO", "host-sync", None),
        ("INFO", "over-budget", "f#1"),
        ("WARNING", "attribute-changed", None),
    ]
    assert all(record.created > 0 for record in caplog.records)


def test_no_record_is_held_back_when_the_same_thing_happens_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listeners = Listeners()
    listeners.add(LogInstrument())
    with caplog.at_level(logging.INFO, logger="ostinato"):
        for _ in range(100):
            listeners.emit(EAGER)
    assert len(caplog.records) == 100


def test_nobody_listens_in_a_new_process_and_torch_is_not_imported() -> None:
    program = (
        "import sys; from ostinato import instruments as i;"
        "assert not i.active() and not i.active_for(i.Replayed);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
