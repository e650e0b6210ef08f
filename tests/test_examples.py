"""Examples: each runs from beginning to end, and shows what it is there to show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

SHOWS = {
    "01_wrap_a_module.py": ["eager (not-admitted-yet)", "recorded Sequential#1", "replayed"],
    "02_read_the_reason.py": [
        "before: eager (host-sync",
        "02_read_the_reason.py:11 `if mask.any().item():`",
        "after:  replayed fixed#1",
    ],
    "03_buckets.py": ["sizes learnt from traffic", "3 recordings", "200 calls replayed"],
    "04_weights_hot_swap.py": [
        "swapped in place: replayed Linear#1",
        "weights-moved",
        "afterwards:       replayed Linear#2",
    ],
    "05_serve_and_ask.py": ["Hello there", "finished: length", "exit status: 0"],
}


def test_every_example_is_run_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_it_runs_and_shows_what_it_says(name: str) -> None:
    # A script's stdout is not made of the test's own encoding, and reports draw boxes.
    environment = os.environ | {"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(EXAMPLES / name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    for words in SHOWS[name]:
        assert words in ran.stdout
