"""The engine as its callers see it: submit from any thread or event loop, read streams, drain.

    with Engine(EngineConfig(model="smollm2")) as engine:
        stream = engine.ask("The capital of France is", SamplingParams(max_tokens=8))
        async for delta in stream: ...

The work is done by `core` in the thread of `loop`; nothing here waits for a step but what says so.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from ostinato.checkpoints.weights import read_ahead
from ostinato.errors import WrongTypeError
from ostinato.llm.config import EngineConfig
from ostinato.llm.core import Core, InFlight
from ostinato.llm.door import Door, Prompt
from ostinato.llm.event_loops import EventLoops
from ostinato.llm.faults import EngineDown
from ostinato.llm.grammars import Grammars
from ostinato.llm.loading import load
from ostinato.llm.loop import Loop
from ostinato.llm.models.weights import check, source_of
from ostinato.llm.refusals import shown
from ostinato.llm.request import Request, SamplingParams
from ostinato.llm.shapes import ShapeProfile, check_place
from ostinato.llm.standing import EngineCounts, Health
from ostinato.llm.stream import Channel, Stream
from ostinato.llm.structured import read_schema
from ostinato.llm.values import Check, read_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ostinato.graphs import Report
    from ostinato.llm.attention import Choice
    from ostinato.llm.models.paths import DecodePath
    from ostinato.llm.reply import Event, Reply
    from ostinato.llm.structured import Compiled, Schema
    from ostinato.llm.tokenizer import Tokenizer

_PLAIN = SamplingParams()


class Engine:
    """One model, answering.

    Raises:
        UsageError, ResourceError: As `loading.load`.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        if not isinstance(config, EngineConfig):
            raise WrongTypeError(
                f"an engine is made from an EngineConfig, got {shown(config)}",
                code="OST5031",
                remedy="write Engine(EngineConfig(model=...)), or LLM(...) with the same options",
            )
        file = None if config.shape_profile is None else check_place(config.shape_profile)
        loaded = load(config)
        profile = None if file is None else ShapeProfile.load(file)
        self.name = loaded.name
        self.limits = loaded.limits
        self.device = loaded.device
        self.attention_choice: Choice = loaded.choice
        self._decoder = loaded.decoder
        self._core = Core(loaded, config, profile=profile)
        self._door = Door(
            loaded.tokenizer,
            vocabulary=loaded.decoder_config.vocabulary,
            stop_ids=loaded.stop_ids,
            most_logprobs=config.most_logprobs,
            seed=config.seed,
            max_waiting=config.max_waiting,
        )
        self._count = itertools.count()
        self._event_loops = EventLoops()
        self._loop = Loop(self._core, loaded.device)
        self._grammars = Grammars(
            loaded.tokenizer,
            vocabulary=loaded.decoder_config.vocabulary,
            stop_ids=loaded.stop_ids,
            equipped=self._loop.admit,
        )
        # An engine that nobody closed ends when it is collected, or when the interpreter exits.
        self._shut = weakref.finalize(self, _shut, self._loop, self._core, self._grammars, file)
        self._loop.start()

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return self._door.vocabulary

    @property
    def decode_path(self) -> DecodePath:
        """By which way the model's layers are computed, and why."""
        return self._decoder.decode_path

    @property
    def read_bytes(self) -> int:
        """Bytes of the weights that a decode step reads: all but an embedding that is looked up."""
        return self._decoder.read_bytes

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer."""
        return self._door.tokenizer

    def ask(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        salt: str = "",
        request_id: str | None = None,
    ) -> Stream:
        """Submit a prompt: a text or token ids as they stand, or a conversation.

        Raises:
            UsageError: OST5040 to OST5042, a prompt that cannot be read; and as `submit`.
        """
        request = self.read(prompt, params, priority=priority, salt=salt, request_id=request_id)
        # Nobody else has it yet, so it need not be made anew to say that it comes now.
        object.__setattr__(request, "arrival_s", monotonic())
        return self.submit(request)

    def read(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        salt: str = "",
        request_id: str | None = None,
    ) -> Request:
        """Make a request of a prompt, as `ask` submits it.

        Raises:
            UsageError: OST2030, OST5004, OST5040 to OST5042, a prompt that cannot be read.
            WrongTypeError: OST5009, OST5042, OST5046, a value has the wrong type.
        """
        self._loop.require_own_process()
        name = request_id or f"request-{next(self._count)}"
        ids, params = self._door.read_prompt(prompt), _PLAIN if params is None else params
        return Request(name, ids, params, priority, salt)

    def check(self, request: Request) -> None:
        """Refuse a request that `submit` would refuse even with nobody else here; let nobody in.

        Raises:
            As `submit`, but for a full queue and a taken name.
        """
        self._loop.require_taking()
        self._door.check(request)
        self._core.books.check_length(request)

    def compile(self, schema: Schema) -> Future[Compiled]:
        """Begin to make the grammar of `params.schema`, unless it is made; returns at once.

        Raises, by way of the future:
            UsageError: OST5061, OST5062, OST5064, OST5065, no answer can keep to it.
            ResourceError: OST5063, making it takes too long or too much memory.
        """
        self._loop.require_own_process()
        return self._grammars.compile(schema)

    def submit(self, request: Request) -> Stream:
        """Let a request in, and return what will come of it; never waits for a step.

        Args:
            request: An `arrival_s` of 0 means now, on `time.monotonic`.

        Raises:
            PromptTooLong: OST5002.
            QueueFull: OST5101.
            UsageError: OST5008, OST5020, OST5021, OST5040, OST5043, OST5044, OST5060: what cannot
                be done.
            WrongTypeError: OST5042, no `Request`.
            EngineDown: OST5140, OST5141, the engine takes no requests; OST5145, it was made in
                another process.
        """
        request, replies, schema = self._prepare(request)
        channels = []
        for index, reply in enumerate(replies):
            channel = Channel(index, self._door.text(request.params))
            reply.sink = channel.put
            channels.append(channel)
        # Its stream keeps the engine alive, so that the answer still comes.
        cancel = partial(self._cancel, replies)
        stream = Stream(
            request.request_id,
            request.prompt_ids,
            channels,
            cancel,
            self._event_loops,
            self._loop.require_own_process,
        )
        self._let_in(replies, schema)
        return stream

    def _cancel(self, replies: Sequence[Reply]) -> None:
        self._loop.cancel(replies)

    def send(
        self, request: Request, sinks: Sequence[Callable[[Event], None]]
    ) -> Callable[[], None]:
        """Do as `submit`, for whoever makes text of the tokens elsewhere.

        Args:
            request: As in `submit`.
            sinks: For each answer what takes its events, in the loop's thread; it must not wait.

        Returns:
            What ends the request wherever it is.

        Raises:
            As `submit`.
        """
        _, replies, schema = self._prepare(request)
        for reply, sink in zip(replies, sinks, strict=True):
            reply.sink = sink
        self._let_in(replies, schema)
        return partial(self._loop.cancel, replies)

    def _prepare(self, request: Request) -> tuple[Request, list[Reply], Schema | None]:
        self._loop.require_own_process()
        if not isinstance(request, Request):
            raise WrongTypeError(
                f"submit takes a Request, got {shown(request)}",
                code="OST5042",
                remedy="call ask(prompt, params), which takes a text, token ids or messages",
            )
        if not request.arrival_s:
            request = replace(request, arrival_s=monotonic())
        schema = read_schema(request.params.schema)
        return request, self._door.replies(request, next(self._count)), schema

    def _let_in(self, replies: Sequence[Reply], schema: Schema | None) -> None:
        if schema is None:
            self._loop.submit(self._core.submit, replies)
            return
        self._loop.submit(self._core.books.expect, replies)
        try:
            self._grammars.equip(replies, schema)
        except BaseException:  # the caller was interrupted, and nobody else would end them
            self._loop.cancel(replies)
            raise

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Refuse new requests and wait for those that live; see `wait_drained`."""
        return await asyncio.to_thread(self.wait_drained, timeout_s)

    def wait_drained(self, timeout_s: float | None = None) -> bool:
        """Refuse new requests from now on, and wait until none lives.

        Args:
            timeout_s: Whoever has not finished by then is aborted; None waits for all.

        Returns:
            Whether all finished by themselves.
        """
        timeout_s = read_timeout("timeout_s", timeout_s)
        self._loop.refuse()
        has_finished = self._loop.wait_idle(timeout_s)
        if not has_finished:
            self._loop.abort_all()
            self._loop.wait_idle(None)
        return has_finished

    def wait_warm(self, timeout_s: float | None = None) -> bool:
        """Wait until every step that is recorded ahead has been.

        Requests are answered before that too; one that needs a step which is not recorded yet waits
        for it, and one that comes while another is being recorded waits for that.

        Returns:
            Whether all are; False after `timeout_s`, or if the engine has ended.
        """
        return self._loop.wait_warm(read_timeout("timeout_s", timeout_s))

    def update_weights(
        self, given: Mapping[str, Tensor] | Path | str, in_flight: InFlight = "finish"
    ) -> None:
        """Replace the model's weights in place; waits until it is done, between two launches.

        Nothing is recorded anew. All weights are replaced or, if one is refused, none.

        Args:
            given: A state dict with transformers' names, or a folder of safetensors files.
            in_flight: "finish": running requests go on with the keys and values they have;
                "restart": theirs are computed anew, for the prompt and the answer so far.

        Raises:
            UsageError: OST2021 to OST2023, OST5203 to OST5206, weights that do not fit; OST5031, an
                `in_flight` that is neither.
            WeightsLost: OST5212, copying failed half-way; the engine has failed with it.
            EngineDown: OST5140, OST5141, the engine is closed or has failed.
        """
        self.start_update(given, in_flight).result()

    def start_update(
        self, given: Mapping[str, Tensor] | Path | str, in_flight: InFlight = "finish"
    ) -> Future[None]:
        """Do as `update_weights`, and return what will be done when they are replaced.

        Returns when a folder's files have been read once: steps go on meanwhile.
        """
        self._loop.require_own_process()
        Check("OST5031").choice("in_flight", in_flight, ("finish", "restart"))
        # Here, so that the loop stops neither for a folder with a hole, nor for the disk.
        check(self._decoder, self._decoder.translate(source_of(given)))
        if not isinstance(given, Mapping):
            read_ahead(Path(given).expanduser())
        return self._loop.call(lambda: self._core.update_weights(given, in_flight))

    def between_steps(self, command: Callable[[], None]) -> Future[None]:
        """Have something done in the thread that runs the steps, between two of them.

        Raises:
            EngineDown: OST5140, OST5141, the engine is closed or has failed.
        """
        return self._loop.call(command)

    @property
    def fault(self) -> EngineDown | None:
        """Why the engine has stopped by itself; None while it works or was closed."""
        return self._loop.fault

    def health(self) -> Health:
        """Say whether the engine works; never waits for a step."""
        return self._loop.health()

    def counts(self) -> EngineCounts:
        """Return how things stand; never waits for a step."""
        self._loop.require_own_process()
        return self._core.tally.counts(self._core.books)

    def report(self) -> Report:
        """Return what happened to the recordings of the decode step."""
        return self._core.resident.report()

    def check_integrity(self) -> None:
        """Check that every page is held by those who say so.

        Raises:
            InternalError: OST5190.
        """
        self._core.books.check_integrity()

    def close(self) -> None:
        """Abort what lives, end the thread, give the recordings back. Safe to call again."""
        self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _shut(loop: Loop, core: Core, grammars: Grammars, profile_file: Path | None) -> None:
    if loop.is_foreign:
        return
    grammars.close()
    loop.close()
    if loop.fault is None and loop.has_ended:  # else it is in the loop's thread, amid a step
        core.close()
    if profile_file is not None:
        core.warming.profile.keep(profile_file)
