"""The engine without a server: the same requests, as many at once, in a process of its own.

    python -m ostinato.bench.serve.alone

It takes one `Work` as a line of JSON on its standard input, and answers with one line of JSON: what
each load came to. The process ends before the server starts, so that both have the whole machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from ostinato.bench.attempt import error_text
from ostinato.bench.serve.beside import Alone
from ostinato.bench.serve.output import whole
from ostinato.bench.serve.planning import Planned
from ostinato.bench.serve.server import words_for
from ostinato.errors import ResourceError

if TYPE_CHECKING:
    from ostinato.llm import Engine
    from ostinato.llm.stream import Stream


class Load(msgspec.Struct, array_like=True):
    """One load, as often as it is repeated.

    Attributes:
        at_once: Requests that live together.
        rising: Requests that are sent first and not counted.
        repeats: Of each: its requests, in their order.
    """

    at_once: int
    rising: list[Planned]
    repeats: list[list[Planned]]


class Work(msgspec.Struct):
    """What an engine is to do.

    Attributes:
        words: Of a server's command line; what they say of the engine is read.
    """

    words: list[str]
    loads: list[Load]


def measure_alone(
    model: str, config: Mapping[str, Any] | None, options: Sequence[str], loads: Sequence[Load]
) -> list[Alone]:
    """Return what each load comes to with the engine of such a server; see `server.started`.

    Raises:
        ResourceError: OST4042, the process ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="ostinato-bench-") as folder:
        work = Work(words_for(model, config, options, Path(folder)), list(loads))
        done = subprocess.run(
            [sys.executable, "-m", "ostinato.bench.serve.alone"],
            input=msgspec.json.encode(work),
            capture_output=True,
            check=False,
        )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.decode(errors="replace").strip()[-600:]
        raise ResourceError(
            f"the engine alone ended with status {done.returncode}; it said: {said or 'nothing'}",
            code="OST4042",
            remedy="start `ostinato serve` with the same words to see all that its engine says",
        )
    return msgspec.json.decode(lines[-1], type=list[Alone])


def options_in(words: Sequence[str]) -> dict[str, Any]:
    """Return what a server's command line says of its engine, as `EngineConfig.read` takes it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("model", "device", "dtype"):
        parser.add_argument(f"--{name}")
    for name in ("max-batch", "max-waiting", "max-waiting-tokens"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--engine", action="append", default=[])
    read, _ = parser.parse_known_args(list(words))
    options = {name: value for name, value in vars(read).items() if value is not None}
    for pair in options.pop("engine"):
        name, _, value = pair.partition("=")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _run(work: Work) -> list[Alone]:
    from ostinato.llm import Engine, EngineConfig

    with Engine(EngineConfig.read(options_in(work.words))) as engine:
        engine.wait_warm()
        return [_measure(engine, load) for load in work.loads]


def _measure(engine: Engine, load: Load) -> Alone:
    try:
        _send(engine, load.rising, load.at_once)
        found = [_send(engine, planned, load.at_once) for planned in load.repeats]
    except Exception as error:  # noqa: BLE001 - it becomes the result, in full view
        return Alone(error=error_text(error))
    return sorted(found, key=lambda one: one.tok_s)[len(found) // 2]


def _send(engine: Engine, planned: Sequence[Planned], at_once: int) -> Alone:
    from ostinato.llm import SamplingParams

    tokens = 0
    tpots_s, ttfts_s = list[float](), list[float]()
    living: deque[Stream] = deque()
    began = time.monotonic()

    def take() -> None:
        nonlocal tokens
        output = living.popleft().result()
        if output.error is not None:
            raise output.error
        tokens += len(output.token_ids)
        for values, one in (
            (tpots_s, output.metrics.tpot_s),
            (ttfts_s, output.metrics.ttft_s),
        ):
            if one is not None:
                values.append(one)

    for one in planned:
        if len(living) == at_once:
            take()
        params = SamplingParams(max_tokens=one.new, temperature=0, ignore_eos=True)
        living.append(engine.ask(one.prompt, params))
    while living:
        take()
    seconds = time.monotonic() - began
    return Alone(tokens / seconds, _median_ms(tpots_s), _median_ms(ttfts_s))


def _median_ms(values_s: Sequence[float]) -> float | None:
    return median(values_s) * 1e3 if values_s else None


def main() -> None:
    """Answer the one line of standard input."""
    work = msgspec.json.decode(sys.stdin.buffer.readline(), type=Work)
    output = whole(sys.stdout.buffer)
    output.write(msgspec.json.encode(_run(work)) + b"\n")
    output.flush()


if __name__ == "__main__":
    main()
