"""The server that is measured: started here and ended here, or one that runs on this machine."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ostinato.bench.serve.dummy import write_folder
from ostinato.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from types import FrameType

_LOOK_EVERY_S = 0.05
_END_S = 40.0
_SHOWN_LINES = 8


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send requests.

    Attributes:
        model: As the server calls it.
        facts: For the result: its command or address, and seconds until it was ready.
    """

    host: str
    port: int
    model: str
    facts: Mapping[str, Any]


def running(url: str, api_key: str = "") -> Target:
    """Return a server that runs already, on this machine.

    Raises:
        UsageError: OST4041, the address is of another machine, or no http address.
        ResourceError: OST4042, nothing answers there.
    """
    parts = urlsplit(url if "//" in url else f"http://{url}")
    host = parts.hostname or ""
    if parts.scheme != "http" or not _is_loopback(host):
        raise UsageError(
            f"load is sent to this machine alone, and {url!r} is another address",
            code="OST4041",
            remedy="name one such as http://127.0.0.1:8000, or start a server with --model",
        )
    port = parts.port or 80
    facts = {"url": url, "objectives": "as it was started with"}
    return Target(host, port, _model_name(host, port, api_key), facts)


@contextmanager
def started(
    model: str,
    config: Mapping[str, Any] | None,
    options: Sequence[str] = (),
    *,
    wait_s: float = 300.0,
) -> Iterator[Target]:
    """Start `ostinato serve`, wait until it is ready, and end it with the context.

    Args:
        model: A folder, or a name that the server knows.
        config: Dimensions of a model without weights, which is served under the name `model`.
        options: Further words of its command line; see `words_for`.

    Raises:
        ResourceError: OST4042, it ended, or was not ready in time.
    """
    port = _free_port()
    with leaving_on_sigterm(), tempfile.TemporaryDirectory(prefix="ostinato-bench-") as folder:
        words = [sys.executable, "-m", "ostinato.cli", "serve", "--port", str(port)]
        words += words_for(model, config, options, Path(folder))
        log = Path(folder) / "server.log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            _wait_ready(process, port, wait_s, log)
            ready_s = time.monotonic() - began
            name = _model_name("127.0.0.1", port, "")
            said = shlex.join(["ostinato", *words[3:]]).replace(f"{folder}/", "")
            facts = {
                "command": said,
                "objectives": ", ".join(objectives_in(words)),
                "ready_s": round(ready_s, 2),
            }
            yield Target("127.0.0.1", port, name, facts)
        finally:
            _end(process)


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """Let SIGTERM, as `timeout` sends it, end this program with all that it started.

    By itself it would end the program alone: a server has a session of its own, and would go on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def words_for(
    model: str, config: Mapping[str, Any] | None, options: Sequence[str], folder: Path
) -> list[str]:
    """Return the words of a command line that say what is served, and how.

    A server that is measured at its limits would break the promises of an ordinary one all the
    time, and its breaker would shed what is to be measured: without `--objective` there are none.

    Args:
        folder: Where a model without weights is written to.
    """
    words = ["--model", model]
    if config is not None:
        words = ["--model", str(write_folder(folder / model, config)), "--engine", "load=dummy"]
    if not objectives_in(options):
        words += [word for promise in ("ttft", "itl") for word in ("--objective", f"{promise}=off")]
    return [*words, *options]


def objectives_in(words: Sequence[str]) -> list[str]:
    """Return the objectives that a command line names."""
    found = []
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--objective":
            found.append(value if equals else "".join(words[place + 1 : place + 2]))
    return found


def _wait_ready(process: subprocess.Popen[bytes], port: int, wait_s: float, log: Path) -> None:
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        if process.poll() is not None:
            raise _not_ready(f"ended with status {process.returncode}", log)
        try:
            if _get("127.0.0.1", port, "/readyz")[0] == 200:
                return
        except OSError:
            pass  # it does not listen yet
        time.sleep(_LOOK_EVERY_S)
    raise _not_ready(f"was not ready within {wait_s:g} s", log)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else is in it
            process.wait()


def _model_name(host: str, port: int, api_key: str) -> str:
    try:
        status, body = _get(host, port, "/v1/models", api_key)
        if status == 200:
            return str(json.loads(body)["data"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise _no_models(host, port, repr(error)) from error
    raise _no_models(host, port, f"status {status}")


def _get(host: str, port: int, path: str, api_key: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _not_ready(what: str, log: Path) -> ResourceError:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = " | ".join(lines[-_SHOWN_LINES:])[-1000:]
    return ResourceError(
        f"the server {what}; it said: {said or 'nothing'}",
        code="OST4042",
        remedy="start it by hand with the same words to see all that it says",
    )


def _no_models(host: str, port: int, why: str) -> ResourceError:
    return ResourceError(
        f"no models are listed at http://{host}:{port}/v1/models: {why:.200}",
        code="OST4042",
        remedy="start an OpenAI-compatible server there, or one here with --model",
    )
