"""A real HAProxy before three servers: one made slow, one failing, one hung, one killed.

The configuration is the one of deploy/haproxy, with shorter times between its checks.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from deploy.manifests import DEPLOY
from deploy.servers import (
    CLIENTS,
    Load,
    Servers,
    free_port,
    load,
    load_and,
    three_servers,
    wait_listening,
)

CONFIGURATION = DEPLOY / "haproxy" / "haproxy.cfg"
# Text of the configuration -> the same, quicker: out for 3 s instead of five minutes.
QUICKER = {
    "inter 2s downinter 10s fall 2 rise 30": "inter 100ms downinter 200ms fall 2 rise 15",
    "timeout check 2s": "timeout check 300ms",
    "timeout server 60s": "timeout server 1s",
    "slowstart 30s": "slowstart 100ms",
}
# The same, but a server that is in is checked as seldom as it is in truth: a good check begins the
# count of errors anew, and on a busy machine no three fall between two that are 100 ms apart.
SELDOM_CHECKED = QUICKER | {
    "inter 2s downinter 10s fall 2 rise 30": "inter 2s downinter 200ms fall 2 rise 15"
}
# What the guide has the operator type, in order: out, well again, in.
GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "operate.md"
COMMANDS = re.findall(r'echo "(set server [^"]+)"', GUIDE.read_text(encoding="utf-8"))


@dataclass
class Balanced:
    """A balancer and its servers."""

    port: int
    behind: Servers
    socket: Path

    def tell(self, command: str) -> str:
        """Say something on HAProxy's administration socket, and return the answer."""
        with closing(socket.socket(socket.AF_UNIX)) as admin:
            admin.settimeout(10)
            admin.connect(str(self.socket))
            admin.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: admin.recv(65536), b"")).decode()

    def servers(self) -> dict[str, dict[str, str]]:
        """What HAProxy says of each server."""
        rows = csv.DictReader(io.StringIO(self.tell("show stat").removeprefix("# ")))
        mine = (row for row in rows if row["pxname"] == "servers")
        return {row["svname"]: row for row in mine if row["svname"] in self.behind.ports}

    def up(self) -> set[str]:
        """The servers that get traffic."""
        servers = self.servers()
        return {name for name, said in servers.items() if said["status"].startswith("UP")}

    def wait_up(self, names: set[str], within_s: float = 30.0) -> float:
        began = time.monotonic()
        while self.up() != names:
            assert time.monotonic() - began < within_s, f"{self.up()} are up, not {names}"
            time.sleep(0.02)
        return time.monotonic() - began

    def load(self, seconds: float, clients: int = CLIENTS) -> Load:
        return load(self.port, seconds, clients)


@contextmanager
def balancing(tmp_path: Path, changes: Mapping[str, str]) -> Iterator[Balanced]:
    """Run HAProxy before three servers.

    Args:
        changes: Text of the configuration, and what stands in its place.
    """
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        pytest.skip("needs HAProxy (Debian package haproxy)")
    text = CONFIGURATION.read_text(encoding="utf-8")
    for usual, instead in changes.items():
        assert usual in text
        text = text.replace(usual, instead)
    (tmp_path / "haproxy.cfg").write_text(text, encoding="utf-8")
    port = free_port()
    with three_servers() as behind, (tmp_path / "haproxy.log").open("wb") as log:
        told = {"OSTINATO_BIND": f"127.0.0.1:{port}", "OSTINATO_ADMIN": str(tmp_path / "admin")}
        told |= {f"OSTINATO_{name.upper()}": f"127.0.0.1:{of}" for name, of in behind.ports.items()}
        balancer = subprocess.Popen(
            [haproxy, "-db", "-f", tmp_path / "haproxy.cfg"],
            env=os.environ | told,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        made = Balanced(port, behind, tmp_path / "admin")
        try:
            while not made.socket.exists():
                assert balancer.poll() is None, (tmp_path / "haproxy.log").read_text()
                time.sleep(0.02)
            wait_listening(port)
            made.wait_up({"a", "b", "c"})
            yield made
        finally:
            balancer.kill()
            balancer.wait()


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[Balanced]:
    """Servers whose checks follow each other quickly."""
    with balancing(tmp_path, QUICKER) as made:
        yield made


@pytest.fixture
def seldom_checked(tmp_path: Path) -> Iterator[Balanced]:
    """Servers that are put out by what clients see, long before their next check."""
    with balancing(tmp_path, SELDOM_CHECKED) as made:
        yield made


def test_three_servers_that_are_well_share_the_load_and_nothing_is_lost(
    balanced: Balanced,
) -> None:
    seen = balanced.load(1.0)
    assert not seen.wrong
    assert set(seen.whole) == {"a", "b", "c"}
    assert min(seen.whole.values()) > sum(seen.whole.values()) / 6


@pytest.mark.slow
def test_a_slow_server_says_so_itself_and_is_sent_nobody_until_it_is_quick_again(
    balanced: Balanced,
) -> None:
    balanced.behind.become("b", first_s="0.6")
    before = balanced.load(3.0, clients=12)
    assert max(before.first_s) > 0.5
    # Its breaker sheds, and when that is not enough it is ready no more.
    shed = before.wrong.pop("429", 0)
    for _ in range(20):
        if balanced.up() == {"a", "c"}:
            break
        shed += balanced.load(0.5, clients=12).wrong["429"]
    assert balanced.up() == {"a", "c"}
    assert not before.wrong, "shed load is 429, and no failure"
    during = balanced.load(0.5)
    assert not during.wrong
    assert set(during.whole) == {"a", "c"}
    assert max(during.first_s) < 0.4
    balanced.behind.become("b", first_s="0.01")
    balanced.wait_up({"a", "b", "c"}, within_s=30)


def test_a_server_that_is_taken_out_before_it_is_stopped_costs_nobody(balanced: Balanced) -> None:
    stopped = balanced.behind.processes["a"]

    def wait_idle() -> None:
        while balanced.servers()["a"]["scur"] != "0":
            time.sleep(0.02)

    seen = load_and(
        balanced.port,
        lambda: balanced.tell(COMMANDS[0]),
        wait_idle,
        lambda: stopped.send_signal(signal.SIGTERM),
        lambda: stopped.wait(30),
    )
    assert not seen.wrong
    assert seen.whole["a"] > 0
    assert balanced.load(0.5).whole["a"] == 0


def test_a_server_that_was_taken_out_by_hand_is_brought_back_at_once(balanced: Balanced) -> None:
    balanced.tell(COMMANDS[0])
    assert balanced.load(0.5).whole["a"] == 0
    for command in COMMANDS[1:]:
        balanced.tell(command)
    balanced.wait_up({"a", "b", "c"})
    assert balanced.load(1.0).whole["a"] > 0


def test_a_killed_server_costs_those_it_was_answering_and_nobody_after_them(
    balanced: Balanced,
) -> None:
    for name in "abc":
        balanced.behind.become(name, first_s="0.2")
    seen = load_and(
        balanced.port, lambda: balanced.behind.processes["a"].send_signal(signal.SIGKILL)
    )
    balanced.wait_up({"b", "c"})
    # It was answering at most its share of them, and they had begun to see the answer.
    assert sum(seen.wrong.values()) <= CLIENTS
    # 503 would mean that a connection was refused and nobody else was asked.
    assert set(seen.wrong) <= {"cut", "short", "502"}
    after = balanced.load(0.6)
    assert not after.wrong
    assert set(after.whole) == {"b", "c"}


def test_a_server_that_fails_three_times_is_taken_out_and_comes_back_when_it_is_well(
    seldom_checked: Balanced,
) -> None:
    balanced = seldom_checked
    balanced.behind.become("c", status="500")
    wrong: Counter[str] = Counter()
    for _ in range(40):
        wrong += balanced.load(0.25, clients=3).wrong
        times_out = int(balanced.servers()["c"]["chkdown"])
        if times_out:
            break
    assert times_out >= 1
    assert 3 <= wrong["500"] < 100
    assert wrong.total() == wrong["500"]
    assert balanced.behind.readiness("c") == 200, "its check was good all the while"
    assert [balanced.servers()[name]["chkdown"] for name in "ab"] == ["0", "0"]
    balanced.behind.become("c", status="200")
    balanced.wait_up({"a", "b", "c"}, within_s=30)


def test_a_server_that_hangs_is_taken_out_by_its_check(balanced: Balanced) -> None:
    balanced.behind.processes["b"].send_signal(signal.SIGSTOP)
    try:
        balanced.wait_up({"a", "c"})
        seen = balanced.load(0.5)
        assert not seen.wrong
        assert set(seen.whole) == {"a", "c"}
    finally:
        balanced.behind.processes["b"].send_signal(signal.SIGCONT)


@pytest.mark.parametrize("path", ["/admin/weights", "/metrics", "/ui"])
def test_clients_do_not_reach_what_is_not_for_them(balanced: Balanced, path: str) -> None:
    assert httpx.get(f"http://127.0.0.1:{balanced.port}{path}", timeout=5).status_code == 404


def test_the_configuration_is_valid_as_it_is(tmp_path: Path) -> None:
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        pytest.skip("needs HAProxy (Debian package haproxy)")
    told = {"OSTINATO_BIND": "127.0.0.1:8080", "OSTINATO_ADMIN": str(tmp_path / "admin")}
    told |= {f"OSTINATO_{name}": "127.0.0.1:8000" for name in "ABC"}
    done = subprocess.run(
        [haproxy, "-c", "-f", CONFIGURATION],
        env=os.environ | told,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
