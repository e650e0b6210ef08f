"""A benchmark that is ended by SIGTERM ends the server that it started."""

from __future__ import annotations

import signal
import threading

import pytest

from ostinato.bench.serve.server import leaving_on_sigterm


def test_sigterm_leaves_by_the_way_that_ends_what_was_started() -> None:
    ended = []

    def measure() -> None:
        with leaving_on_sigterm():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                ended.append("the server")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        measure()
    assert left.value.code == 128 + signal.SIGTERM
    assert ended == ["the server"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_another_thread_signals_stay_as_they_are() -> None:
    handlers = []

    def look() -> None:
        with leaving_on_sigterm():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [before]
