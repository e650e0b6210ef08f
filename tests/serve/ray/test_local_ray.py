"""A real Ray on this machine: two engines of a tiny model behind its proxy, and one is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "ray_story.py"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_engines_come_and_go_and_no_accepted_request_is_lost_unsaid(
    tiny_chat: Path, tmp_path: Path, repository: Path
) -> None:
    if find_spec("ray") is None:
        pytest.skip("needs the package ray[serve]")
    path = os.pathsep.join([str(repository / "src"), str(repository / "tests")])
    out = tmp_path / "told.json"
    # Of its own: Ray leaves threads and handlers behind, and this process goes on.
    process = subprocess.Popen(
        [sys.executable, SCRIPT, tiny_chat, out, str(free_port())],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=560)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    assert process.returncode == 0, said.decode(errors="replace")[-6000:]
    told: dict[str, Any] = json.loads(out.read_text())

    assert told["first"] == {"status": 200, "same": True}
    assert len(told["pids"]) == 2

    killed = told["killed"]
    assert killed["requests"] == killed["whole"] + killed["told"]  # nothing hangs, nothing is cut
    assert killed["whole"] > 0
    assert set(killed["errors"]) <= {"error in the stream: OST6020"}
    assert told["after"] == {"whole": 8, "errors": []}
    assert len(told["pids_after"]) == 2
    assert not set(told["killed_pid"]) & set(told["pids_after"])

    assert told["same_beginning"] == 1  # engines that saw prompts which begin alike

    assert told["frames"] > 10  # of 40 tokens: no batcher holds them back
    assert told["most_gap_s"] < 1.0

    scaled = told["scaled"]
    assert (scaled["before"], scaled["flooded"]) == (1, 2)
    assert scaled["flood_errors"] == []
    assert scaled["still_writing"]  # when the second engine was told to go
    assert scaled["errors"] == []
    assert scaled["tokens"] == [2500, 2500]
