"""The parent of the service: it starts the engine and the front ends, and keeps them running.

It imports no torch, holds no model and answers no request, so there is little that could end it. It
owns the listening sockets: a front end that died leaves its connections waiting for the next one.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import FrameType

from ostinato.errors import ResourceError
from ostinato.llm.config import EngineConfig
from ostinato.serve.heartbeat import Heartbeat
from ostinato.serve.restarts import Restarts
from ostinato.serve.run_folder import run_folder
from ostinato.serve.settings import Settings
from ostinato.serve.setup import Setup

EXIT_SETUP, EXIT_HOPELESS = 2, 1
_POLL_S = 0.05
_BACKLOG = 2048
_GRACE_S = 5.0
"""Beyond the bound of the drain, before a process is ended by force."""
_LATER_S, _TO_SAY_S = 1.0, 1.0
"""How much later than the front ends a mute engine is found out, and how long it may then write."""
_ENGINE, _FRONT = "ostinato.serve.engine_process", "ostinato.serve.front_process"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Child:
    """A process and how often it was started.

    Attributes:
        heartbeat: Of an engine.
        is_mute: Whether it has been found out that nothing is heard of it.
    """

    name: str
    module: str
    listener: socket.socket | None = None
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0
    heartbeat: Heartbeat | None = None
    is_mute: bool = False
    restarts: Restarts = field(default_factory=Restarts)


class Supervisor:
    """Of one service.

    Args:
        announce: Told once where the service listens.
    """

    def __init__(self, settings: Settings, announce: Callable[[str], None]) -> None:
        self._settings = settings
        self._announce = announce
        self._stop = threading.Event()
        self._signals = 0
        self._children: list[_Child] = []

    def run(self) -> int:
        """Keep the service running until a signal ends it; return the exit status.

        Raises:
            UsageError: OST5030, OST5031, an option of the engine.
            ResourceError: OST6003, the address cannot be had; OST6005, no place for sockets.
        """
        if self._settings.callable is None:
            EngineConfig.read(self._settings.engine_options)  # told here, and not seconds later
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        listeners = _listen(self._settings)
        port = listeners[0].getsockname()[1]
        with run_folder() as run:
            self._children = self._plan(listeners)
            self._announce(_address(self._settings, port))
            try:
                return self._keep(run)
            finally:
                self._end(listeners)

    def _plan(self, listeners: list[socket.socket]) -> list[_Child]:
        fronts = [_Child(f"front-{at}", _FRONT, one) for at, one in enumerate(listeners)]
        if self._settings.callable is not None:
            return fronts
        return [_Child("engine", _ENGINE), *fronts]

    def _keep(self, run: str) -> int:
        while not self._stop.wait(_POLL_S):
            for child in self._children:
                status = self._look_after(child, run)
                if status is not None:
                    return status
        return 0

    def _look_after(self, child: _Child, run: str) -> int | None:
        """Start a process that should run; return a status if the service cannot go on."""
        now = monotonic()
        if child.process is None:
            return self._start(child, run) if now >= child.due else None
        code = child.process.poll()
        if code is None:
            self._end_if_mute(child, now)
            return None
        if code == EXIT_SETUP:
            _close(child)  # it has said why and what to do: those are the last words
            return EXIT_SETUP
        _log.error("a process ended", extra={"child": child.name, "exit_status": code})
        was_ready = child.listener is not None or _engine_socket(run).exists()
        _close(child)
        status = _ended(child, now - child.started, was_ready=was_ready)
        if status is None and child.restarts.wait_s == 0:
            status = self._start(child, run)
        return status

    def _end_if_mute(self, child: _Child, now: float) -> None:
        """End an engine of whose process nothing is heard any more: it cannot do so itself."""
        if child.heartbeat is None or child.process is None:
            return
        silent_s = child.heartbeat.silent_s(now)
        over_s = silent_s - self._settings.progress_s - _LATER_S
        if over_s > _TO_SAY_S:
            child.process.kill()
        elif over_s > 0 and not child.is_mute:
            child.is_mute = True
            _log.critical(
                "the engine's process has not been heard of for %.0f s, and --progress-s allows "
                "%g: it is ended",
                silent_s,
                self._settings.progress_s,
            )
            child.process.send_signal(signal.SIGUSR1)  # it writes what its threads do

    def _start(self, child: _Child, run: str) -> int | None:
        """Start a process; return a status if the service cannot go on without it."""
        descriptor = -1 if child.listener is None else child.listener.fileno()
        setup = Setup(self._settings, run, child.name, descriptor)
        if child.listener is None:
            _engine_socket(run).unlink(missing_ok=True)
            setup.heartbeat.unlink(missing_ok=True)
            child.heartbeat, child.is_mute = Heartbeat(setup.heartbeat), False
        # The same packages over there as here, however this process came by them.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            child.process = subprocess.Popen(
                [sys.executable, "-P", "-m", child.module],
                stdin=subprocess.PIPE,
                env=environment,
                pass_fds=() if child.listener is None else (descriptor,),
                start_new_session=True,  # Ctrl-C is for this process, which stops them in order
            )
        except OSError as error:  # the machine has none left: the others go on meanwhile
            _log.error("a process cannot be had", extra={"child": child.name, "why": str(error)})
            return _ended(child, 0.0, was_ready=child.listener is not None)
        child.started = monotonic()
        assert child.process.stdin is not None
        try:
            child.process.stdin.write(setup.to_line())
            child.process.stdin.flush()
        except BrokenPipeError:
            return None  # it has ended already, and is found so in a moment
        _log.info("a process started", extra={"child": child.name, "pid": child.process.pid})
        return None

    def _end(self, listeners: list[socket.socket]) -> None:
        """Stop the front ends, which wait for open answers, and the engine after them."""
        fronts = [child for child in self._children if child.listener is not None]
        others = [child for child in self._children if child.listener is None]
        _terminate(fronts)
        self._wait(fronts, self._settings.drain_s + _GRACE_S)
        for listener in listeners:
            listener.close()
        _terminate(others)
        self._wait(others, _GRACE_S)
        for child in self._children:
            if child.process is not None:
                child.process.kill()
                child.process.wait()
                _close(child)

    def _wait(self, children: list[_Child], seconds: float) -> None:
        deadline = monotonic() + seconds
        before = self._signals
        for child in children:
            while child.process is not None and child.process.poll() is None:
                if monotonic() > deadline or self._signals > max(before, 1):
                    return
                threading.Event().wait(_POLL_S)

    def _on_signal(self, signum: int, where: FrameType | None) -> None:
        self._signals += 1  # a second one does not wait any more
        self._stop.set()


def _ended(child: _Child, lived_s: float, *, was_ready: bool) -> int | None:
    """Say when it is to be started again, or return a status if it never is."""
    child.restarts = child.restarts.ended(lived_s, was_ready=was_ready)
    if child.restarts.is_hopeless:
        _log.critical("it does not start; giving up", extra={"child": child.name})
        return EXIT_HOPELESS
    child.due = monotonic() + child.restarts.wait_s
    return None


def _terminate(children: list[_Child]) -> None:
    for child in children:
        if child.process is not None and child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)


def _close(child: _Child) -> None:
    if child.process is not None and child.process.stdin is not None:
        child.process.stdin.close()
    child.process = None


def _engine_socket(run: str) -> Path:
    return Path(run) / "engine.sock"


def front_ends(settings: Settings) -> int:
    """Return how many processes speak HTTP."""
    if settings.callable is not None:
        return 1  # it has the module's process for a child
    if settings.front_ends is not None:
        return settings.front_ends
    if settings.embedder is not None:
        return 1  # each would have an encoder of its own
    has_gpu = Path("/dev/nvidiactl").exists() and settings.engine.get("device") != "cpu"
    cores = os.cpu_count() or 1
    return max(1, min(4, cores // 2)) if has_gpu else 1


def _listen(settings: Settings) -> list[socket.socket]:
    """Return one listening socket for each front end; the system spreads connections over them.

    Raises:
        ResourceError: OST6003, the address cannot be had.
    """
    listeners: list[socket.socket] = []
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        for at in range(front_ends(settings)):
            listener = socket.socket(family, kind)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if at == 0:
                listener.bind(address)  # alone: another program's port is refused, not shared
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if at > 0:
                listener.bind(listeners[0].getsockname())
        for listener in listeners:
            listener.listen(_BACKLOG)
            listener.set_inheritable(True)
    except (OSError, UnicodeError) as error:
        for listener in listeners:
            listener.close()
        raise _not_listened(settings, error) from error
    return listeners


def _not_listened(settings: Settings, error: OSError | UnicodeError) -> ResourceError:
    is_host = isinstance(error, socket.gaierror | UnicodeError)
    if isinstance(error, OSError):
        is_host |= error.errno == errno.EADDRNOTAVAIL
    return ResourceError(
        f"{settings.host:.80} port {settings.port} cannot be listened on: "
        f"{error.strerror if isinstance(error, OSError) else error}",
        code="OST6003",
        remedy="pass a --host that this machine has, such as 127.0.0.1, or 0.0.0.0 for all"
        if is_host
        else "pass another --port, or 0 for a free one",
    )


def _address(settings: Settings, port: int) -> str:
    scheme = "http" if settings.tls_cert is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{port}"
