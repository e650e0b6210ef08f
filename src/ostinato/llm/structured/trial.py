"""A grammar is tried in a process of its own before the engine compiles it.

One process tries many grammars, one after the other, and is replaced when one of them has ended it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from ostinato.errors import ResourceError
from ostinato.llm.structured.problems import not_compiled, tokenizer_unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODULE = "ostinato.llm.structured.trial_process"


class Trial:
    """One process that tries; started with the first grammar.

    Args:
        tokenizer: The content of a `tokenizer.json`.
        timeout_s: What one grammar may take.
        room_bytes: Memory that it may take.
    """

    def __init__(
        self,
        tokenizer: str,
        *,
        vocabulary: int,
        stop_ids: Sequence[int],
        timeout_s: float,
        room_bytes: int,
    ) -> None:
        self._timeout_s = timeout_s
        self._setup = {
            "tokenizer": tokenizer,
            "vocabulary": vocabulary,
            "stop_ids": list(stop_ids),
            "timeout_s": timeout_s,
            "room_bytes": room_bytes,
        }
        self._process: subprocess.Popen[str] | None = None

    def run(self, grammar: str) -> None:
        """Wait until the grammar has been compiled over there.

        Raises:
            UsageError: OST5062, it cannot be compiled; OST5065, the tokenizer cannot be used.
            ResourceError: OST5063, it takes too long or too much memory.
        """
        if self._process is None:
            self._start()
        problem = self._ask(grammar)
        if problem is None:
            raise self._ended()
        if problem:
            raise not_compiled(problem)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> None:
        # The same packages over there as here, however this process came by them.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a process out of memory says so at length
            text=True,
            encoding="utf-8",
            env=environment,
        )
        problem = self._ask(self._setup)
        if problem is None:
            raise self._ended()
        if problem:
            self.close()
            raise tokenizer_unusable(problem)

    def _ask(self, question: object) -> str | None:
        """Return the answer; None if the process ended instead."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            return None
        return str(json.loads(line)) if line else None

    def _ended(self) -> ResourceError:
        assert self._process is not None
        code = self._process.wait()
        self._process.communicate()
        self._process = None
        if code == -signal.SIGALRM:
            what = f"compiling the schema took more than {self._timeout_s:g} s"
        elif code == -signal.SIGABRT:
            what = "compiling the schema took more memory than there is for one"
        else:
            what = f"the process that compiles schemas ended with {code}"
        return ResourceError(
            what,
            code="OST5063",
            remedy="simplify the schema: fewer alternatives, smaller repeats and multipleOf",
        )
