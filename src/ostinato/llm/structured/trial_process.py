"""The process in which grammars are tried: `python -m ostinato.llm.structured.trial_process`.

Compiling cannot be broken off, and a few lines of schema can ask for hours or for all memory. Here
the system does both: an alarm ends this process, and so does an allocation beyond the room that it
gives itself. `trial` starts another one.

It reads a line of JSON from its input, the tokenizer, and answers; then a line for each grammar.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path

from ostinato.llm.structured.making import LLTokenizer, match, token_table
from ostinato.llm.structured.problems import said_by

_STATM = Path("/proc/self/statm")


def main() -> None:
    """Answer until the input ends."""
    setup = json.loads(sys.stdin.readline())
    try:
        table = token_table(setup["tokenizer"], setup["vocabulary"], setup["stop_ids"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the one who asked is told
        _answer(str(error) or type(error).__name__)
        return
    _bound_memory(setup["room_bytes"])
    _answer("")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, setup["timeout_s"])
        problem = _tried(table, json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        _answer(problem)


def _tried(table: LLTokenizer, grammar: str) -> str:
    try:
        return str(match(table, grammar).get_error())
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        return said_by(error)


def _bound_memory(room_bytes: int) -> None:
    """Leave room for one grammar beside what the process has now."""
    if _STATM.exists():
        held = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + room_bytes, resource.RLIM_INFINITY))


def _answer(problem: str) -> None:
    sys.stdout.write(json.dumps(problem) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
