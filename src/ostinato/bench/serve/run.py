"""The whole benchmark: a server, client processes, and one load after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ostinato.bench.attempt import error_text
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.head import describe_run, version_of
from ostinato.bench.run import device_named
from ostinato.bench.serve.alone import Load, measure_alone
from ostinato.bench.serve.arriving import CHAT, window
from ostinato.bench.serve.beside import Alone, compare
from ostinato.bench.serve.client import Share
from ostinato.bench.serve.clients import Clients, clients
from ostinato.bench.serve.objective import Objective
from ostinato.bench.serve.planning import (
    Kind,
    Level,
    Planned,
    Shape,
    as_fast_as_taken,
    as_in_trace,
    closed_loop,
    poisson,
)
from ostinato.bench.serve.rows import ServeResult, ServeRow
from ostinato.bench.serve.seen import Seen, Summary, summarise
from ostinato.bench.serve.server import Target, running, started
from ostinato.errors import UsageError

Save = Callable[[ServeResult], None]
Tell = Callable[[str], None]

APIS: Mapping[str, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_MOST_CLIENTS = 8
_MOST_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to measure.

    Attributes:
        model: A name in `bench.decode.models.MODELS` (served without weights), a folder, or a name
            that the server knows; None: a server that runs at `url`.
        levels: The loads, one after the other.
        requests: Of each stream of a closed loop.
        seconds: Of an open loop; of a trace's window, in the trace's own time.
        arrivals: Of a trace: "chat" or "code" are drawn with its statistics; else a CSV file.
        rising: Uncounted at the beginning: requests of each stream, or seconds of an open loop. A
            trace that is taken as fast as it can be is sent once for it.
        repeats: How often each load is offered; the one with the median rate is reported.
        processes: Client processes; None: half the cores, at most 8.
        is_beside: Whether the engine alone does the same work first, for comparison.
        max_len: Longer requests of a trace are cut to so many tokens.
        server_options: Further words of the server's command line.
        is_tiny: A toy model in the place of the one named.

    Raises:
        UsageError: OST4021, a value that cannot be.
    """

    model: str | None = None
    url: str | None = None
    levels: tuple[Level, ...] = (Level(Kind.CLOSED, 1), Level(Kind.CLOSED, 64))
    requests: int = 4
    seconds: float = 30.0
    arrivals: str = CHAT
    rising: float = 1.0
    repeats: int = 1
    shape: Shape = field(default_factory=Shape)
    api: str = "completions"
    api_key: str = ""
    processes: int | None = None
    is_beside: bool = False
    max_len: int = _MOST_TOKENS
    timeout_s: float = 300.0
    objective: Objective = field(default_factory=Objective)
    server_options: Sequence[str] = ()
    device: str = "auto"
    is_tiny: bool = False

    def __post_init__(self) -> None:
        if (self.model is None) == (self.url is None):
            raise _wrong("one of --model and --url must be given, and not both", "pass --model")
        if self.api not in APIS:
            raise _wrong(f"there is no api {self.api!r}", f"choose from {', '.join(APIS)}")
        if self.is_beside and (self.model is None or self.shape.cancelled):
            raise _wrong(
                "an engine can be measured beside its server only if both are started here, and "
                "no client goes away",
                "pass --model without --cancelled, or leave out --beside",
            )
        if not self.levels or any(level.size <= 0 for level in self.levels):
            raise _wrong("a load must be above 0", "pass --streams 1,64 or --rates 2,8")

    @property
    def config(self) -> Mapping[str, Any] | None:
        """Dimensions of the model to serve without weights; None for one that has some."""
        if self.is_tiny:
            return TINY
        return MODELS.get(self.model or "")

    @property
    def client_processes(self) -> int:
        """How many processes send requests."""
        if self.processes is not None:
            return self.processes
        return max(1, min(_MOST_CLIENTS, len(os.sched_getaffinity(0)) // 2))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the key."""
        return {
            "model": self.model,
            "levels": [str(level) for level in self.levels],
            "requests": self.requests,
            "seconds": self.seconds,
            "arrivals": self.arrivals.rpartition("/")[2],
            "rising": self.rising,
            "repeats": self.repeats,
            "shape": asdict(self.shape),
            "api": self.api,
            "clients": self.client_processes,
            "max_len": self.max_len,
            "server_options": list(self.server_options),
            "is_tiny": self.is_tiny,
        }


def run_serve(options: ServeOptions, *, tell: Tell, save: Save) -> ServeResult:
    """Measure what `options` ask for.

    Args:
        tell: Is told what begins, for people who wait.
        save: Gets the result so far after every load.

    Raises:
        UsageError: OST4021, a load of which nothing is counted; OST4022, the trace cannot be read;
            OST4041, the address is not of this machine.
        ResourceError: OST4042, no server, or no engine alone; OST4043, a client ended.
    """
    plans = [
        [_plan(level, options, seed) for seed in range(options.repeats)] for level in options.levels
    ]
    for level, plan in zip(options.levels, plans, strict=True):
        _check_counted(level, plan, options)
    head = describe_run(device_named(options.device))
    asked = options.to_dict() | {"client_loop": f"uvloop {version_of('uvloop')}"}
    head |= {"benchmark": "serve", "options": asked}
    result = ServeResult(head, options.objective)
    alone = _alone(plans, options, tell)
    tell("waiting for the server")
    with _server(options) as target, clients(options.client_processes) as senders:
        result = replace(result, server=target.facts)
        for level, plan in zip(options.levels, plans, strict=True):
            tell(f"{target.model}: {level}")
            row = _row(level, plan, target, senders, options)
            if level in alone:
                row = replace(row, beside=compare(row.summary, alone[level]))
            result = replace(result, rows=(*result.rows, row))
            save(result)
    return result


def _check_counted(
    level: Level, plans: Sequence[list[list[Planned]]], options: ServeOptions
) -> None:
    """Refuse a load that would say nothing: in bursts, minutes may pass without a request."""
    lasts_s = options.seconds / (level.size if level.kind is Kind.TRACE else 1)
    for streams in plans:
        if not any(one.is_counted for stream in streams for one in stream):
            raise _wrong(
                f"of {level} no request is counted: {sum(map(len, streams))} come in "
                f"{lasts_s:g} s, none of them after the first {options.rising:g}",
                "pass more --seconds, which are the trace's own, or less --rising",
            )


def _alone(
    plans: Sequence[Sequence[list[list[Planned]]]], options: ServeOptions, tell: Tell
) -> dict[Level, Alone]:
    """Return what the engine gives without a server, of every load that has so many at once."""
    asked = {
        level: plan
        for level, plan in zip(options.levels, plans, strict=True)
        if level.streams is not None
    }
    if not options.is_beside or not asked:
        return {}
    assert options.model is not None
    tell("the engine alone")
    loads = [
        Load(level.streams or 1, _in_turn(_rising(level, options)), list(map(_in_turn, plan)))
        for level, plan in asked.items()
    ]
    found = measure_alone(options.model, options.config, options.server_options, loads)
    return dict(zip(asked, found, strict=True))


def _in_turn(streams: Sequence[Sequence[Planned]]) -> list[Planned]:
    """Return the first request of every stream, then the second of each, and so on."""
    most = max(map(len, streams), default=0)
    return [stream[turn] for turn in range(most) for stream in streams if turn < len(stream)]


def _server(options: ServeOptions) -> AbstractContextManager[Target]:
    if options.url is not None:
        return nullcontext(running(options.url, options.api_key))
    assert options.model is not None
    return started(options.model, options.config, options.server_options)


def _row(
    level: Level,
    plans: Sequence[list[list[Planned]]],
    target: Target,
    senders: Clients,
    options: ServeOptions,
) -> ServeRow:
    sizes = (0, 0) if level.is_trace else (options.shape.prompt, options.shape.new)
    row = ServeRow(target.model, str(level), *sizes, options.repeats)
    share = _share(target, options)
    try:
        if level.streams is not None and options.rising:
            senders.run(share, _rising(level, options))
        found = [_summary(level, senders.run(share, plan), options.objective) for plan in plans]
    except OSError as error:
        return replace(row, error=error_text(error))
    by_rate = sorted(found, key=lambda summary: summary.tok_s)
    return replace(
        row,
        summary=by_rate[len(by_rate) // 2],
        tok_s_all=tuple(round(summary.tok_s, 2) for summary in found),
    )


def _summary(level: Level, seen: Sequence[Seen], objective: Objective) -> Summary:
    return summarise(seen, objective, is_closed=level.kind is Kind.CLOSED)


def _share(target: Target, options: ServeOptions) -> Share:
    body: dict[str, object] = {
        "model": target.model,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Share(
        target.host,
        target.port,
        APIS[options.api],
        body,
        [],
        0.0,
        timeout_s=options.timeout_s,
        api_key=options.api_key,
    )


def _rising(level: Level, options: ServeOptions) -> list[list[Planned]]:
    """Return what streams send first, uncounted; of a trace all, for every shape is to be known."""
    asked = replace(options, requests=math.ceil(options.rising))
    if not asked.requests:
        return []
    return _plan(level, replace(asked, shape=replace(options.shape, cancelled=0.0)), seed=99)


def _plan(level: Level, options: ServeOptions, seed: int) -> list[list[Planned]]:
    shape = options.shape
    if level.kind is Kind.CLOSED:
        return closed_loop(int(level.size), options.requests, shape, seed)
    if level.kind is Kind.POISSON:
        planned = poisson(level.size, options.seconds, shape, rising_s=options.rising, seed=seed)
        return [[one] for one in planned]
    found = window(options.arrivals, options.seconds, options.max_len)
    arrivals = [(one.at_s, one.context, one.generated) for one in found]
    if level.kind is Kind.FULL:
        return as_fast_as_taken(arrivals, int(level.size), shape, seed=seed)
    planned = as_in_trace(arrivals, level.size, shape, rising_s=options.rising, seed=seed)
    return [[one] for one in planned]


def _wrong(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, code="OST4021", remedy=remedy)
