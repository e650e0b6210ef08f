"""The process that holds a callable: loads it, warms it, and answers over a Unix socket.

    python -m ostinato.serve.callable.process '{"factory": "pkg.mod:make", "socket": "/run/x", ...}'

Front ends connect once it is warm. It ends when its standard input does, which is when its parent
dies, and with status 70 when the device is lost or 71 when a batch hangs, so that whoever started
it starts another one.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from ostinato.errors import OstinatoError
from ostinato.serve.callable import messages
from ostinato.serve.callable.arrays import Arrays
from ostinato.serve.callable.blame import traceback_of
from ostinato.serve.callable.declaration import make
from ostinato.serve.callable.faults import Failure, failed, not_started
from ostinato.serve.callable.in_process import InProcess
from ostinato.serve.callable.model import DeviceLost, Model
from ostinato.serve.callable.setup import (
    EXIT_DEVICE_LOST,
    EXIT_FAILED,
    EXIT_HANGS,
    EXIT_UNFIT,
    Setup,
)
from ostinato.serve.collector import set_loaded_aside
from ostinato.serve.metrics import Metrics
from ostinato.serve.peers import answer_in_thread
from ostinato.serve.setup import tell_stacks

_READ_BYTES = 1 << 20
_LOOK_EVERY_S = 0.5


class _FrontEnd:
    """One connection."""

    def __init__(
        self, service: InProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self._running: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Answer until the front end goes; what it had asked for is dropped then."""
        self._say(messages.Hello(self._service.description))
        frames = messages.to_model()
        try:
            while data := await self._reader.read(_READ_BYTES):
                for frame in frames.feed(data):
                    for message in frame:
                        self._take(message)
        except (ConnectionError, ValueError, msgspec.MsgspecError):
            pass  # it is gone, or speaks another language
        finally:
            for task in self._running.values():
                task.cancel()
            self._writer.close()

    def _take(self, message: messages.ToModel) -> None:
        if isinstance(message, messages.Cancel):
            task = self._running.get(message.key)
            if task is not None:
                task.cancel()
            return
        task = asyncio.create_task(self._answer_surely(message))
        key = message.key
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _answer_surely(self, message: messages.ToModel) -> None:
        """Answer, or leave a front end that would wait for ever."""
        try:
            await self._answer(message)
        except Exception:
            traceback.print_exc()
            self._writer.close()
            raise

    async def _answer(self, message: messages.ToModel) -> None:
        match message:
            case messages.Infer(key, inputs, priority, timeout_s, alone):
                try:
                    outputs = await self._service.infer(
                        inputs,
                        priority=priority,
                        timeout_s=timeout_s,
                        alone=alone,
                        key=key,
                        begun=self._say_begun,
                    )
                except OstinatoError as error:
                    self._say(messages.Failed(key, Failure.of(error)))
                except Exception as error:  # noqa: BLE001 - told to the client, who alone can act
                    self._say(messages.Failed(key, Failure.of(failed(error))))
                else:
                    self._say(messages.Done(key, dict(outputs)))
            case messages.Count(key):
                self._say(messages.Counted(key, await self._service.numbers()))
            case messages.Drain(key, bound_s):
                self._say(messages.Drained(key, await self._service.drain(bound_s)))

    def _say_begun(self, keys: list[int]) -> None:
        self._say(messages.Began(keys))

    def _say(self, message: messages.ToFront) -> None:
        if not self._writer.is_closing():
            self._writer.write(messages.frame([message]))


class _UntilLost(Model):
    """A model that ends the process when its device is lost."""

    def run(self, batch: Sequence[Arrays]) -> list[Arrays | OstinatoError]:
        try:
            return super().run(batch)
        except DeviceLost as error:
            sys.stderr.write(f"the device is lost, this process ends: {error}\n")
            sys.stderr.flush()
            os._exit(EXIT_DEVICE_LOST)


async def serve(setup: Setup) -> None:
    """Load, warm, listen, and answer until the parent is gone."""
    model = await asyncio.to_thread(lambda: _UntilLost(make(setup.factory, *setup.arguments)))
    service = InProcess(model, setup.limits)
    if setup.name:
        _tell_metrics(setup, service, model)
    await service.warm()
    set_loaded_aside()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _FrontEnd(service, reader, writer).serve()

    path = Path(setup.socket)
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(connected, path)
    bound_s = inf if setup.hang_s is None else setup.hang_s
    watch = asyncio.create_task(_end_when_stuck(service, bound_s), name="hang watch")
    try:
        await _parent_gone()
    finally:
        watch.cancel()
        server.close()  # the path stays: another process may have it by now


async def _end_when_stuck(service: InProcess, hang_s: float) -> None:
    """End this process when its model hangs: a thread cannot be ended, and others wait for it."""
    while (why := service.trouble(hang_s)) is None:
        await asyncio.sleep(_LOOK_EVERY_S)
    sys.stderr.write(f"{why}, and --progress-s allows {hang_s:g}: this process ends\n")
    faulthandler.dump_traceback()
    sys.stderr.flush()
    os._exit(EXIT_HANGS)


def _tell_metrics(setup: Setup, service: InProcess, model: Model) -> None:
    metrics = Metrics(Path(setup.socket).stem)
    metrics.watch_graphs()
    metrics.watch_model(setup.name, service.count, lambda: model.rows)
    answer_in_thread(setup.metrics_socket, metrics.snapshot)


async def _parent_gone() -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    stdin: Any = sys.stdin.buffer

    def look() -> None:
        if not os.read(stdin.fileno(), 4096):
            loop.remove_reader(stdin)
            gone.set()

    loop.add_reader(stdin, look)
    await gone.wait()


def main() -> int:
    """Run with the setup given as the one argument, in JSON."""
    # Ctrl-C reaches every process of a terminal: the parent decides when this one goes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell_stacks()
    setup = msgspec.json.decode(sys.argv[1], type=Setup)
    try:
        asyncio.run(serve(setup))
    except OstinatoError as error:
        if error.__cause__ is not None:
            sys.stderr.write(traceback_of(error.__cause__))
        setup.leave(Failure.of(error))
        return EXIT_UNFIT
    except Exception as error:  # noqa: BLE001 - another try may do, and if not it is told
        traceback.print_exception(error)
        setup.leave(Failure.of(not_started(error)))
        return EXIT_FAILED
    sys.stderr.flush()
    os._exit(0)  # a batch may run still, and nobody waits for it


if __name__ == "__main__":
    sys.exit(main())
