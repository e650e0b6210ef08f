"""Where the engine's process takes what front ends ask, and from where its news go back.

It turns messages into calls of the engine and the engine's events into messages. Who carries the
messages is not its business: a socket (`engine_process`) or nothing at all (`local_link`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ostinato.errors import InternalError, OstinatoError, UsageError
from ostinato.llm import EngineDown, QueueFull, Request
from ostinato.serve.admission import DrainRate, Load, Queue
from ostinato.serve.drain import company
from ostinato.serve.known_params import read_params
from ostinato.serve.profiling import ProfilerBusy, profile
from ostinato.serve.wire import Admitted, Ask, Block, Generate, Hello, Problem, Pulse, Timing, Told

if TYPE_CHECKING:
    from ostinato.llm import Engine
    from ostinato.llm.reply import Event
    from ostinato.serve.versions import Versions

News = tuple[int, int, "Event"]
"""Whose, which of its answers, and what came."""


@dataclass(slots=True)
class Living:
    """A request that has not ended.

    Attributes:
        left: Its answers that have not.
        end: Ends it wherever it is.
    """

    left: int
    end: Callable[[], None] | None = None


class Client(Protocol):
    """Whoever asked."""

    name: str
    living: dict[int, Living]

    def put(self, news: News) -> None:
        """Take news, in the engine's thread; must not wait."""
        ...


class Desk:
    """One engine's."""

    def __init__(self, engine: Engine, versions: Versions) -> None:
        self.engine = engine
        self.versions = versions
        self._drain_rate = DrainRate()
        self._entered = [0, 0]  # requests and prompt tokens, since the start
        self._living = 0
        self._lock = Lock()

    def hello(self) -> Hello:
        """Introduce the engine."""
        now = self.versions.now
        config = self.engine.config
        return Hello(
            name=self.engine.name,
            folder=self.versions.tokenizer_folder,
            version=now.label,
            created=now.since,
            vocabulary=self.engine.vocabulary,
            max_model_len=self.engine.limits.max_model_len,
            most_logprobs=config.most_logprobs,
        )

    def submit(self, asked: Generate, client: Client) -> Admitted:
        """Let a request in, or say why not; never waits for a step."""
        if not self._enter(asked, client):
            return Admitted(asked.key, company())
        try:
            params = read_params(asked.options)
            request = Request(
                f"{client.name}.{asked.key}",
                tuple(asked.prompt_ids),
                params,
                priority=asked.priority,
                salt=asked.salt,
                arrival_s=monotonic(),
            )
            sinks = [partial(self._forward, client, asked.key, index) for index in range(params.n)]
            living = client.living[asked.key]
            living.left = params.n
            living.end = self.engine.send(request, sinks)
        except OstinatoError as error:
            self._leave(asked.key, client)
            full = isinstance(error, QueueFull)
            wait_s = self._retry_s(asked) if full else None
            return Admitted(asked.key, problem_of(error, wait_s))
        with self._lock:
            self._entered[0] += params.n
            self._entered[1] += len(asked.prompt_ids) * params.n
        return Admitted(asked.key)

    def _enter(self, asked: Generate, client: Client) -> bool:
        """Count a request in; False if it wants to be alone and is not."""
        with self._lock:
            if asked.is_lone and self._living:
                return False
            self._living += 1
        client.living[asked.key] = Living(1)
        return True

    def _leave(self, key: int, client: Client) -> Living | None:
        """Count a request out, once, whoever is the first to say that it is over."""
        living = client.living.pop(key, None)
        if living is not None:
            with self._lock:
                self._living -= 1
        return living

    def _retry_s(self, asked: Generate) -> float:
        limits, counts = self.engine.limits, self.engine.counts().scheduler
        queue = Queue(
            Load(counts.waiting, counts.waiting_tokens),
            Load(limits.max_waiting, limits.max_waiting_tokens),
        )
        wanted = Load(int(asked.options.get("n") or 1), len(asked.prompt_ids))
        with self._lock:
            return self._drain_rate.retry_s(monotonic(), queue, wanted)

    def cancel(self, keys: list[int], client: Client) -> None:
        """End requests wherever they are."""
        for key in keys:
            living = self._leave(key, client)
            if living is not None and living.end is not None:
                living.end()

    def leave(self, client: Client) -> None:
        """Nobody is there any more for whom this client asked."""
        self.cancel(list(client.living), client)

    def _forward(self, client: Client, key: int, index: int, event: Event) -> None:
        if event.finish is not None:
            living = client.living.get(key)
            if living is not None:
                living.left -= 1
                if not living.left:
                    self._leave(key, client)
        client.put((key, index, event))

    def pulse(self) -> Pulse:
        """Say how the engine stands, and measure how fast its queue moves."""
        health, counts = self.engine.health(), self.engine.counts().scheduler
        with self._lock:
            left = Load(self._entered[0] - counts.waiting, self._entered[1] - counts.waiting_tokens)
            self._drain_rate.note(monotonic(), left, is_empty=not counts.waiting)
        return Pulse(
            why=health.why,
            idle_s=health.idle_s,
            is_living=health.living,
            is_warm=health.is_warm,
            waiting=counts.waiting,
            waiting_tokens=counts.waiting_tokens,
            running=counts.running,
        )

    def answer(self, asked: Ask) -> Told:
        """Answer what may be asked; may wait long, so in a thread of its own."""
        answers: Mapping[str, Callable[..., Any]] = {
            "counts": self._counts,
            "update_weights": partial(self.versions.update, self.engine),
            "rollback": partial(self.versions.rollback, self.engine),
            "profile": partial(profile, self.engine),
        }
        try:
            return Told(asked.key, answers[asked.name](**asked.values))
        except OstinatoError as error:
            return Told(asked.key, problem=problem_of(error))
        except Exception as error:  # noqa: BLE001 - whoever asked must not wait for ever
            broken = InternalError(
                f"{asked.name} failed: {type(error).__name__}: {error}",
                code="OST6015",
                remedy="report it with the log of the engine's process",
            )
            return Told(asked.key, problem=problem_of(broken))

    def _counts(self) -> dict[str, Any]:
        counts = self.engine.counts()
        scheduler = counts.scheduler
        return {
            "waiting": scheduler.waiting,
            "waiting_tokens": scheduler.waiting_tokens,
            "running": scheduler.running,
            "under_way": scheduler.under_way,
            "available_pages": scheduler.available_pages,
            "ends": {str(name): number for name, number in counts.ends.items()},
            "new_tokens": counts.new_tokens,
            "steps": counts.steps,
        }


def block_of(key: int, index: int, event: Event) -> Block:
    """Return news as it is sent."""
    tokens, error = event.token_ids, event.error
    ends_by_token = event.finish == "stop" and tokens and tokens[-1] in event.reply.stop_ids
    reported, metrics = event.logprobs, event.metrics
    return Block(
        key,
        index,
        list(tokens),
        mute=1 if ends_by_token else 0,
        logprobs=None if reported is None else [(one.chosen, list(one.top)) for one in reported],
        finish=None if event.finish is None else event.finish.value,
        problem=None if error is None else problem_of(error),
        timing=None
        if metrics is None
        else Timing(metrics.ttft_s, metrics.tpot_s, metrics.queued_s, metrics.cached_tokens),
    )


def problem_of(error: OstinatoError, retry_s: float | None = None) -> Problem:
    """Return an error as it is sent."""
    if isinstance(error, QueueFull):
        kind = "full"
    elif isinstance(error, EngineDown):
        kind = "down"
    elif isinstance(error, ProfilerBusy):
        kind = "busy"
    else:
        kind = "usage" if isinstance(error, UsageError) else "internal"
    return Problem(error.code, str(error.args[0]), error.remedy, kind, retry_s)
