"""What the routes of a front end work with: one frozen bundle, and what each part promises.

`app.build` takes it; every feature's `routes(services)` reads from it. The parts are protocols, so
that a test can put a real engine of its own process where a service has a socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ostinato.errors import OstinatoError

if TYPE_CHECKING:
    from ostinato.serve.drain import Drain
    from ostinato.serve.gen_ai import Telemetry
    from ostinato.serve.health import Health
    from ostinato.serve.least_answer import Least
    from ostinato.serve.metrics import Metrics
    from ostinato.serve.peers import Peers
    from ostinato.serve.settings import Settings
    from ostinato.serve.slo import Breaker
    from ostinato.serve.tokens import Tokens
    from ostinato.serve.wire import Problem, Pulse, Timing


@dataclass(frozen=True, slots=True)
class Model:
    """The model that is served.

    Attributes:
        name: As clients call it.
        version: Label of its weights; changes with `/admin/weights`. Empty until it is known.
        created: Since when these weights are in use, in seconds since 1970.
        max_model_len: Tokens, prompt and answer together; 0 where that means nothing.
        most_logprobs: Likeliest tokens that may be asked for.
    """

    name: str
    version: str
    created: int
    vocabulary: int = 0
    max_model_len: int = 0
    most_logprobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """Ask an engine for answers to one prompt.

    Attributes:
        prompt_ids: Its tokens.
        options: As `SamplingParams.read` takes them; checked before it is built.
        priority: The smaller, the sooner; 0 is ordinary.
        salt: Cached prompts are shared only with requests of the same salt.
        request_id: For logs and traces.
        with_text: Whether blocks are to carry text.
        is_lone: Let it in only while the engine has no other request.
        least_call: What every answer has, where tools are called, for their grammar does not say.
    """

    prompt_ids: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    priority: int = 0
    salt: str = ""
    request_id: str = ""
    with_text: bool = True
    is_lone: bool = False
    least_call: Least | None = None


@dataclass(slots=True)
class TokenBlock:
    """What came of one answer since the last block; a slow reader gets fewer and larger ones.

    Attributes:
        index: Which of the request's answers.
        text: Certain text; those of all blocks joined are the answer.
        token_ids: New tokens.
        logprobs: For each token its own and the likeliest ones with theirs, if asked for.
        finish_reason: "stop", "length", "abort" or "error", in the last block of an answer.
        error: What went wrong, where the finish reason is "error".
        timing: With the last block.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[tuple[float, list[tuple[int, float]]]] | None = None
    finish_reason: str | None = None
    error: Problem | None = None
    timing: Timing | None = None


class Answers(Protocol):
    """The answers to one request as they come: `async for block in answers`."""

    def __aiter__(self) -> AsyncIterator[TokenBlock]: ...

    def end(self, problem: Problem) -> None:
        """End them in an error; what has come stays readable."""
        ...

    def cancel(self) -> None:
        """Nobody waits for them any more; safe at any time, and again."""
        ...


class Link(Protocol):
    """The way to one engine."""

    @property
    def model(self) -> Model:
        """What it runs, as of now."""
        ...

    @property
    def pulse(self) -> Pulse | None:
        """How it stood last; None before it was ever heard of, or while it is gone."""
        ...

    @property
    def pulse_age_s(self) -> float:
        """How long ago that was."""
        ...

    @property
    def open_requests(self) -> int:
        """Requests that have not ended."""
        ...

    async def wait_first(self, seconds: float) -> None:
        """Wait for the engine's first word, at most so long."""
        ...

    async def submit(self, request: GenerateRequest) -> Answers:
        """Ask; returns when the engine has let the request in.

        Raises:
            Refused: It has not; its `problem` says why.
        """
        ...

    async def ask(self, name: str, **values: Any) -> Any:
        """Have the engine answer about itself, or do something; see `desk.Desk`.

        Raises:
            Refused: It will not; its `problem` says why.
        """
        ...

    def close(self) -> None:
        """End it; whoever waits is told."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All that a front end has.

    Attributes:
        fixed_model: The model where there is no engine; one without a version has the callable's.
        link: The engine that writes; None where something else is served.
        tokens: Texts to tokens and back, off the event loop; None without a tokenizer.
        health: What `/livez`, `/readyz` and `/healthz` say.
        drain: Who is being answered, and whether anybody else may come.
        callable: What answers `/v2/models/*/infer`; None where a model that writes is served.
        embedder: What answers `/v1/embeddings`; None where no such model is served.
        peers: Where the other processes of the service can be asked for their metrics.
        telemetry: Where traces go; None: none are made.
    """

    settings: Settings
    metrics: Metrics
    health: Health
    drain: Drain
    link: Link | None = None
    tokens: Tokens | None = None
    breaker: Breaker | None = None
    callable: Any = None
    embedder: Any = None
    fixed_model: Model | None = None
    peers: Peers | None = None
    telemetry: Telemetry | None = None

    @property
    def model(self) -> Model:
        """The model that is served, as of now."""
        if self.link is not None:
            return self.link.model
        fixed = self.fixed_model
        assert fixed is not None
        return fixed if fixed.version else replace(fixed, version=self._declared_version())

    def _declared_version(self) -> str:
        """Return what the callable says of itself; nothing until it has been loaded."""
        try:
            version: str = self.callable.description.version
        except OstinatoError:
            return ""
        return version
