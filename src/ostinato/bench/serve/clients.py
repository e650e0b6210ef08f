"""Several client processes that begin together, so that none of them is what is measured."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from ostinato.bench.serve.client import Share
from ostinato.bench.serve.planning import Planned, share_out
from ostinato.bench.serve.seen import Seen
from ostinato.errors import ResourceError

_HEAD_START_S = 0.5
"""For every client to have read its share and made its connections."""

_decoder = msgspec.json.Decoder(list[Seen])


class Clients:
    """Client processes, started once and used for every load; see `clients`."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def run(self, target: Share, streams: Sequence[Sequence[Planned]]) -> list[Seen]:
        """Send the streams, dealt out evenly, to `target`; return what was seen.

        Raises:
            ResourceError: OST4043, a client process ended.
        """
        dealt = share_out(streams, len(self._processes))
        planned = sum(map(len, streams))
        begin = time.monotonic() + _HEAD_START_S + planned / 5000 + len(streams) / 500
        for place, part in enumerate(dealt):
            share = msgspec.structs.replace(
                target,
                streams=[list(stream) for stream in part],
                begin_s=begin,
                first_stream=place,
                stride=len(dealt),
            )
            stdin = self._processes[place].stdin
            assert stdin is not None
            try:
                stdin.write(msgspec.json.encode(share) + b"\n")
                stdin.flush()
            except BrokenPipeError:
                raise _ended(self._processes[place]) from None
        return [seen for place in range(len(dealt)) for seen in self._hear(place)]

    def _hear(self, place: int) -> list[Seen]:
        stdout = self._processes[place].stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise _ended(self._processes[place])
        return _decoder.decode(line)


@contextmanager
def clients(number: int) -> Iterator[Clients]:
    """Start so many client processes; they end with the context."""
    words = [sys.executable, "-m", "ostinato.bench.serve.client"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            processes.append(
                subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
            )
        yield Clients(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _ended(process: subprocess.Popen[bytes]) -> ResourceError:
    return ResourceError(
        f"a client process ended with status {process.wait()}",
        code="OST4043",
        remedy="see what it wrote to standard error; start fewer with --clients",
    )
