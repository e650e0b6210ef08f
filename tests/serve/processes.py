"""The real command, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep

import httpx
import psutil

from serve.running import wait_for

ENGINE = ("max_batch=8", "kv_memory=16MiB", "backend=eager")


@dataclass
class Service:
    """`ostinato serve`, running.

    Attributes:
        http: Asks it.
        log: What it and its children logged, one object a line.
    """

    process: subprocess.Popen[str]
    url: str
    http: httpx.Client
    log: list[dict[str, object]] = field(default_factory=list)

    @property
    def engine(self) -> psutil.Process:
        """The engine's process."""
        return next(one for one in self.children() if "engine_process" in " ".join(one.cmdline()))

    def children(self) -> list[psutil.Process]:
        """All processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def is_ready(self) -> bool:
        """Whether it is ready."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self, seconds: float = 120) -> int:
        """Tell it to stop, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def served(
    folder: Path | None,
    *options: str,
    verify: ssl.SSLContext | bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """Run the command until the block ends, and see that nothing of it is left.

    Args:
        folder: The model; None for a service without one.
        verify: Whom to trust, over HTTPS.
        environment: Variables beside those that are there.
    """
    command = [sys.executable, "-m", "ostinato.cli", "serve"]
    command += ["--port", "0", "--device", "cpu", "--served-name", "tiny"]
    if folder is not None:
        command += ["--model", str(folder)]
        for option in ENGINE:
            command += ["--engine", option]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment or {}),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving "), (line, process.stderr and process.stderr.read())
    url = line.split()[-1]
    # One client for all: to make one takes as long as many answers.
    service = Service(process, url, httpx.Client(base_url=url, verify=verify, timeout=120))
    reader = threading.Thread(target=_read, args=(service,), daemon=True)
    reader.start()
    try:
        wait_for(service.is_ready, 240)
        yield service
    finally:
        service.http.close()
        children = service.children() if process.poll() is None else []
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        psutil.wait_procs(children, 60)
        assert not [one for one in children if one.is_running()], "a process is left"
        reader.join(120)
        process.stdout.close()


def _read(service: Service) -> None:
    assert service.process.stderr is not None
    with service.process.stderr as lines:
        for line in lines:
            try:
                service.log.append(json.loads(line))
            except ValueError:
                service.log.append({"message": line})
    sleep(0)
