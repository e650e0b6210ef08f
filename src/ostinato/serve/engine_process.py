"""The process that holds the model: `python -m ostinato.serve.engine_process`.

It exits with 2 when it was set up wrongly, which starting it again would not mend, and with 70 when
its device has failed, which it does.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import time
from types import FrameType
from typing import Any

from ostinato.errors import OstinatoError
from ostinato.serve import logs
from ostinato.serve.collector import set_loaded_aside
from ostinato.serve.engine_socket import FrontEnd
from ostinato.serve.heartbeat import beat
from ostinato.serve.peers import answer_in_thread
from ostinato.serve.setup import Setup, read_setup, tell_stacks, watch_parent

EXIT_SETUP = 2
EXIT_FAULT = 70
_PULSE_S = 0.25
_log = logging.getLogger(__name__)


class EngineProcess:
    """The engine and those who ask it."""

    def __init__(self, setup: Setup, ended: threading.Event) -> None:
        from ostinato.llm import Engine, EngineConfig
        from ostinato.serve.desk import Desk
        from ostinato.serve.engine_numbers import watched
        from ostinato.serve.metrics.waits import GilWatch
        from ostinato.serve.versions import Version, Versions

        settings = setup.settings
        self._ended = ended
        self._heartbeat = setup.heartbeat
        self._fronts: list[FrontEnd] = []
        self._lock = threading.Lock()
        engine = Engine(EngineConfig.read(settings.engine_options))
        folder = _folder_of(settings.model)
        is_dummy = settings.engine.get("load") == "dummy"
        versions = Versions(
            Version(settings.first_version, None if is_dummy else folder, int(time())),
            tokenizer_folder=folder if engine.tokenizer is not None else None,
            file=Path(setup.run) / "weights.json",
            changed=self._greet_all,
        )
        versions.resume(engine)
        self.engine = engine
        self.desk = Desk(engine, versions)
        metrics = watched(engine, setup.name)
        GilWatch(metrics.gil_wait).start()
        answer_in_thread(setup.metrics_socket, metrics.snapshot)

    def serve(self, path: Path) -> int:
        """Answer until told to end; return the exit status."""
        beat(self._heartbeat)  # from here on nothing may take long
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(128)
        threading.Thread(
            target=self._accept, args=(listener,), name="ostinato-accept", daemon=True
        ).start()
        is_aside = False
        while not self._ended.wait(_PULSE_S):
            beat(self._heartbeat)
            if self.engine.fault is not None:
                _log.critical("the engine has failed: %s", self.engine.fault.args[0])
                return EXIT_FAULT
            pulse = self.desk.pulse()
            if pulse.is_warm and not is_aside:
                is_aside = True
                self._set_aside()
            with self._lock:
                for front in self._fronts:
                    front.send([pulse])
        listener.close()
        self.engine.close()
        return 0

    def _set_aside(self) -> None:
        # In the thread that records: what is collected during a capture may end it.
        with suppress(OstinatoError):  # it has just failed, which `serve` sees next
            self.engine.between_steps(set_loaded_aside)

    def _accept(self, listener: socket.socket) -> None:
        count = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the process ends
                return
            front = FrontEnd(f"f{count}", connection, self.desk, self._lost)
            count += 1
            with self._lock:
                self._fronts.append(front)
            try:
                front.start()
            except RuntimeError:  # no more threads: this one tries again, and the others go on
                _log.exception("a front end cannot be talked to")
                self._lost(front)
                connection.close()

    def _lost(self, front: FrontEnd) -> None:
        with self._lock:
            if front in self._fronts:
                self._fronts.remove(front)

    def _greet_all(self) -> None:
        with self._lock:
            for front in self._fronts:
                front.send([self.desk.hello()])


def _folder_of(model: str) -> str:
    if model == "smollm2":
        from ostinato.checkpoints import smollm2_folder

        return str(smollm2_folder())
    return str(Path(model).resolve())


def main() -> int:
    """Run the process."""
    ended = threading.Event()

    def end(signum: int, where: FrameType | None) -> Any:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell_stacks()
    setup = read_setup()
    logs.set_up(setup.settings, setup.name)
    watch_parent(ended.set)
    # A thread that is ready to send tokens waits at most this long for the one that makes them.
    sys.setswitchinterval(0.0005)
    try:
        process = EngineProcess(setup, ended)
    except OstinatoError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETUP
    try:
        status = process.serve(setup.engine_socket)
    except Exception:  # noqa: BLE001 - the engine's thread would be waited for, which may hang
        _log.critical("the process cannot go on", exc_info=True)
        status = EXIT_FAULT
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that read sockets would be waited for


if __name__ == "__main__":
    sys.exit(main())
