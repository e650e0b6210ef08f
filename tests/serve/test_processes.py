"""The service as it is run: a process is killed, it is told to stop, its parent dies."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import psutil
import pytest

from serve.processes import Service, served
from serve.running import wait_for

LONG: dict[str, Any] = {
    "prompt": "hello",
    "max_tokens": 3500,
    "ignore_eos": True,
    "stream": True,
    "return_token_ids": True,
}
KEY = "admin-key"
pytestmark = pytest.mark.slow


class Stream:
    """A stream that is read in a thread."""

    def __init__(self, service: Service, body: dict[str, Any] | None = None) -> None:
        self.lines: list[str] = []
        self.failed: Exception | None = None
        self._url, self._body = f"{service.url}/v1/completions", body or LONG
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            with httpx.stream("POST", self._url, json=self._body, timeout=120) as answer:
                for line in answer.iter_lines():
                    if line:
                        self.lines.append(line)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.failed = error

    def end(self) -> dict[str, Any]:
        """Wait for its end, and return its last event."""
        self._thread.join(120)
        assert not self._thread.is_alive(), "it hangs"
        last: dict[str, Any] = json.loads(self.lines[-1].removeprefix("data: "))
        return last


def test_the_service_survives_its_processes_and_stops_in_order(
    tiny_chat: Path, other_weights: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    options = ("--drain-s", "2", "--front-ends", "2", "--admin-key-file", str(keys))
    with served(tiny_chat, *options) as service:
        _answers(service)
        _metrics_are_of_all_processes(service)
        _who_goes_away_leaves_nothing(service)
        _weights_are_changed(service, other_weights)
        _an_engine_killed_is_started_again(service)
        _answers(service)
        assert _version(service) == "tuned"  # the new engine has the weights of the old one
        _a_front_end_killed_is_started_again(service)
        _a_stop_tells_open_streams(service)
    assert service.process.returncode == 0
    assert not [line for line in service.log if "hello" in str(line)]


def _answers(service: Service) -> None:
    body = {"prompt": "hello", "max_tokens": 4, "temperature": 0}
    for _ in range(4):  # of whichever front end
        answer = service.http.post("/v1/completions", json=body)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 4


def _metrics_are_of_all_processes(service: Service) -> None:
    text = service.http.get("/metrics").text
    processes = {
        line.split('process="')[1].split('"')[0]
        for line in text.splitlines()
        if line.startswith("process_resident_memory_bytes{")
    }
    assert processes == {"engine", "front-0", "front-1"}
    assert "ostinato_generated_tokens_total 16.0" in text


def _admin(service: Service, method: str, path: str, **body: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {KEY}"}
    answer = service.http.request(method, f"/admin/{path}", json=body or None, headers=headers)
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


def _version(service: Service) -> str:
    return str(service.http.get("/v1/models").json()["data"][0]["version"])


def _who_goes_away_leaves_nothing(service: Service) -> None:
    pages = _admin(service, "GET", "counts")["available_pages"]
    with service.http.stream("POST", "/v1/completions", json=LONG) as answer:
        lines = answer.iter_lines()  # held: without it the stream is closed
        next(lines)
        assert _admin(service, "GET", "counts")["running"] == 1
    wait_for(lambda: _admin(service, "GET", "counts")["running"] == 0)  # `test_disconnect` measures
    assert _admin(service, "GET", "counts")["available_pages"] == pages


def _weights_are_changed(service: Service, folder: Path) -> None:
    _admin(service, "POST", "weights", folder=str(folder), version="tuned")
    with httpx.Client(base_url=service.url) as fresh:  # connections go to any front end
        close = {"connection": "close"}

        def told() -> str:
            return str(fresh.get("/v1/models", headers=close).json()["data"][0]["version"])

        wait_for(lambda: {told() for _ in range(8)} == {"tuned"})


def _a_front_end_killed_is_started_again(service: Service) -> None:
    """Who connects meanwhile waits for the next one: nobody is refused."""
    fronts = [one for one in service.children() if "front_process" in " ".join(one.cmdline())]
    assert len(fronts) == 2
    fronts[0].kill()
    wait_for(lambda: not fronts[0].is_running() or fronts[0].status() == "zombie")
    body = {"prompt": "hello", "max_tokens": 1}
    for _ in range(6):
        with httpx.Client(base_url=service.url, timeout=120) as fresh:
            assert fresh.post("/v1/completions", json=body).status_code == 200


def _an_engine_killed_is_started_again(service: Service) -> None:
    """Who had received nothing is answered by the next one; who had is told; nothing hangs."""
    begun = [Stream(service) for _ in range(8)]  # all rows
    wait_for(lambda: all(stream.lines for stream in begun))
    body = {**LONG, "max_tokens": 3}
    with ThreadPoolExecutor(3) as pool:
        whole = {**body, "stream": False}
        waiting = [
            pool.submit(service.http.post, "/v1/completions", json=whole, timeout=120)
            for _ in range(3)
        ]
        wait_for(lambda: _admin(service, "GET", "counts")["waiting"] == 3)
        service.engine.kill()
        for stream in begun:
            assert stream.end()["error"]["code"] == "OST6020"
        assert service.http.get("/healthz").status_code == 503
        down = service.http.post("/v1/completions", json=body)
        assert down.status_code == 503
        assert int(down.headers["retry-after"]) >= 1
        wait_for(service.is_ready, 200)
        for one in waiting:
            assert one.result().status_code == 200, one.result().text
            assert one.result().json()["usage"]["completion_tokens"] == 3


def _a_stop_tells_open_streams(service: Service) -> None:
    stream = Stream(service)
    wait_for(lambda: bool(stream.lines))
    began = monotonic()
    assert service.stop() == 0
    assert monotonic() - began > 1
    assert stream.end()["error"]["code"] == "OST6022"


def test_without_its_parent_nothing_of_the_service_is_left(tiny_chat: Path) -> None:
    with served(tiny_chat) as service:
        children = service.children()
        assert len(children) >= 2
        service.process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(children, 60)
        assert not alive


def test_a_model_that_is_not_there_ends_the_command_with_the_reason(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ostinato.cli", "serve", "--model", str(tmp_path), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    assert "OST2" in done.stderr
    assert "Traceback" not in done.stderr


def test_https_is_spoken_with_a_certificate(tiny_chat: Path, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", cert, "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("needs the program openssl")
    trusted = ssl.create_default_context(cafile=str(cert))
    options = ("--tls-cert", str(cert), "--tls-key", str(key))
    with served(tiny_chat, *options, verify=trusted) as service:
        assert service.url.startswith("https://")
        assert service.http.get("/v1/models").json()["data"][0]["id"] == "tiny"


def test_any_module_is_served_in_place_of_a_model_that_writes(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(
        "import torch\n"
        "from ostinato.serve.callable import Servable, TensorSpec\n"
        "def factory():\n"
        "    return Servable(lambda x: {'y': x * 2}, inputs={'x': TensorSpec('FP32', (-1, 2))},\n"
        "                    outputs=('y',), batch_sizes=(1, 2), device='cpu')\n"
    )
    environment = {"PYTHONPATH": str(tmp_path)}
    with served(None, "--callable", "doubling:factory", environment=environment) as service:
        tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.5]}
        answer = service.http.post("/v2/models/tiny/infer", json={"inputs": [tensor]})
        assert answer.json()["outputs"][0]["data"] == [2.0, 5.0]
        assert service.http.post("/v1/completions", json=LONG).status_code == 404
        assert service.stop() == 0


@pytest.mark.parametrize(
    ("factory", "words"),
    [("raising", "no weights here"), ("three", "returned a int"), ("absent", "absent")],
)
def test_a_callable_that_cannot_load_ends_the_command_with_the_reason(
    tmp_path: Path, factory: str, words: str
) -> None:
    (tmp_path / "unfit.py").write_text(
        "def raising():\n    raise RuntimeError('no weights here')\ndef three():\n    return 3\n"
    )
    done = _refused("--callable", f"unfit:{factory}", cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr[done.stderr.rindex("OST6052: ") :]
    assert words in last
    assert last.endswith("ostinato explain OST6052\n")
    assert "ostinato/serve" not in done.stderr.partition("Traceback")[2]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--engine", "nonsense=1"), "OST5030"),
        (("--engine", "max_batch=-1"), "OST5031"),
        (("--callable", "shop"), "OST6001"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    tmp_path: Path, options: tuple[str, ...], code: str
) -> None:
    done = _refused(*options, cwd=tmp_path)
    assert done.returncode == 2
    assert code in done.stderr
    assert "serving" not in done.stdout
    assert "a process started" not in done.stderr


def _refused(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ostinato.cli", "serve", "--port", "0", *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=cwd,
    )
