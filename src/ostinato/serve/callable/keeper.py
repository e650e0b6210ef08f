"""Keeps the process of a callable running: starts it, and another one when it ends.

Several front ends may share one process: the first to lock its file starts it, and when that front
end goes, so does the process, and the next front end has the lock.

A process that is not fit to be served (a wrong factory) is not tried again; neither is one that
ends again and again before it is ready, however long that takes. One that was ready is started
again however often it ends: a request may be why, and must not end the service for all others. What
it writes goes to this process's standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import msgspec

from ostinato.serve.callable.batching import Limits
from ostinato.serve.callable.client import CallableClient
from ostinato.serve.callable.faults import Failure, not_started
from ostinato.serve.callable.setup import EXIT_UNFIT, Setup
from ostinato.serve.run_folder import run_folder

logger = logging.getLogger("ostinato.serve")

_MOST_ENDS = 3
_KILL_AFTER_S = 1.0
_LOOK_EVERY_S = 0.2
_LATER_S = 1.0
"""The process itself is to be the first to see that it hangs: it knows more."""


@asynccontextmanager
async def served(
    factory: str,
    *arguments: str,
    limits: Limits | None = None,
    wait: bool = True,
    share: Path | None = None,
    name: str = "",
    hang_s: float | None = None,
) -> AsyncIterator[CallableClient]:
    """Serve what `factory` makes from a process of its own, as long as the context lasts.

    Args:
        wait: Until it is warm; else the client says when it is.
        share: A socket's path that names the process for all who are to use the same one; None:
            it is for this context alone.
        name: As clients call the model; its metrics are told under it, none without.
        hang_s: How long a batch may run that keeps others from their answers, and the process be
            without a word; then it is ended and another one started. None: for ever.

    Raises:
        OstinatoError: What the process failed with before it was ready; see
            `CallableClient.wait_ready`; OST6005, no place for its socket.
    """
    with run_folder() if share is None else nullcontext() as folder:
        socket = str(share or f"{folder}/model.sock")
        setup = Setup(factory, socket, limits or Limits(), arguments, name, hang_s)
        client = CallableClient(setup.socket)
        task = asyncio.create_task(_keep(setup, client), name="callable keeper")
        try:
            client.start()
            if wait:
                await client.wait_ready()
            yield client
        finally:
            await client.close()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _keep(setup: Setup, client: CallableClient) -> None:
    try:
        async with _lock(f"{setup.socket}.lock"):
            await _keep_running(setup, client)
    except OSError as error:  # of the machine: no process, or no file, can be had
        logger.exception("the process of %s cannot be started", setup.factory)
        client.break_off("cannot be started", Failure.of(not_started(error)))


@asynccontextmanager
async def _lock(path: str) -> AsyncIterator[None]:
    """Hold a file's lock, which the system takes back from a process that ends."""
    with open(path, "w", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOOK_EVERY_S)
        yield


async def _keep_running(setup: Setup, client: CallableClient) -> None:
    in_vain = 0
    words = [sys.executable, "-m", "ostinato.serve.callable.process"]
    while True:
        greetings = client.greetings
        hangs = partial(_hangs, setup, client)
        status = await _run([*words, msgspec.json.encode(setup).decode()], hangs)
        in_vain = in_vain + 1 if client.greetings == greetings else 0
        cause = setup.take_failure()
        logger.error("the process of %s ended with status %s", setup.factory, status)
        if status == EXIT_UNFIT:
            client.break_off("could not load the model", cause)
            return
        if in_vain == _MOST_ENDS:
            client.break_off(f"ended {in_vain} times before it was ready", cause)
            return


def _hangs(setup: Setup, client: CallableClient) -> bool:
    """Whether the process hangs so that it cannot end itself, which it does as long as it can."""
    if setup.hang_s is None or client.mute_s <= setup.hang_s + _LATER_S:
        return False
    logger.error(
        "the process of %s has not been heard of for %.0f s, and --progress-s allows %g: "
        "it is ended",
        setup.factory,
        client.mute_s,
        setup.hang_s,
    )
    return True


async def _run(words: Sequence[str], hangs: Callable[[], bool] = lambda: False) -> int:
    """Run a process to its end; if it hangs, or this is cancelled, end it."""
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE)
    watch = asyncio.create_task(_end_when(hangs, process), name="callable hang watch")
    try:
        return await process.wait()
    finally:
        watch.cancel()
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            # One that is being loaded does not see that: it would hold a stop up for seconds.
            process.terminate()
            try:
                async with asyncio.timeout(_KILL_AFTER_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _end_when(hangs: Callable[[], bool], process: asyncio.subprocess.Process) -> None:
    while not hangs():
        await asyncio.sleep(_LOOK_EVERY_S)
    process.send_signal(signal.SIGUSR1)  # it writes what its threads do, and needs no lock for that
    await asyncio.sleep(_KILL_AFTER_S)
    process.kill()
