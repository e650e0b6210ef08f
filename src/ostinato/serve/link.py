"""A front end's way to the engine: what was asked, and what has come of it.

Blocks arrive for many requests at once. They get their text together, in a thread if they are many,
and each request's reader is woken once. A reader who is slow finds the blocks joined: it gets fewer
and larger ones, and nothing piles up.

How messages get there is for `socket_link` and `local_link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any

from ostinato.llm.params import SamplingParams
from ostinato.serve.answers import Answers, Refused
from ostinato.serve.fitting import Tongue, check_count
from ostinato.serve.least_answer import least_answer
from ostinato.serve.services import GenerateRequest, Model, TokenBlock
from ostinato.serve.wire import (
    Admitted,
    Ask,
    Block,
    Cancel,
    Hello,
    Problem,
    Pulse,
    ToEngine,
    ToFront,
    Told,
)

if TYPE_CHECKING:
    from ostinato.llm.text import AnswerText
    from ostinato.llm.tokenizer import Tokenizer

__all__ = ["OpenLink", "Refused", "gone"]

_RESTART_S = 5.0
"""After how long it is worth asking an engine again that has gone."""
_FEW_TOKENS = 16
"""So many get their text at once: a thread's turn would take longer."""

_log = logging.getLogger(__name__)
_MUTE = Problem(
    "OST6025",
    "the tokens of the answer cannot be turned into text",
    "report it with the server's log of this request",
    "internal",
)
_TOO_LARGE = Problem(
    "OST5001",
    "a whole number in the request does not fit into 64 bits",
    "send numbers from -2^63 to 2^64 - 1",
    "usage",
)


class OpenLink:
    """What every link does; made and used in one event loop.

    Args:
        served_name: What clients call the model; None: its own name.
    """

    def __init__(self, served_name: str | None = None) -> None:
        self._served_name = served_name
        self._keys = itertools.count(1)
        self._open: dict[int, Answers] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._hello: Hello | None = None
        self._greeted = asyncio.Event()
        self._pulse: Pulse | None = None
        self._pulse_at = monotonic()
        self._tokenizer: Tokenizer | None = None
        self._tongue: tuple[Tokenizer, Tongue] | None = None
        self._voice = ThreadPoolExecutor(1, thread_name_prefix="ostinato-text")
        self._speaking = 0
        self._loop = asyncio.get_running_loop()

    @property
    def model(self) -> Model:
        """What the engine runs; its name alone while it has not said."""
        hello = self._hello
        if hello is None:
            return Model(self._served_name or "", "", 0)
        return Model(
            self._served_name or hello.name,
            hello.version,
            hello.created,
            hello.vocabulary,
            hello.max_model_len,
            hello.most_logprobs,
        )

    @property
    def pulse(self) -> Pulse | None:
        return self._pulse

    @property
    def pulse_age_s(self) -> float:
        return monotonic() - self._pulse_at

    @property
    def open_requests(self) -> int:
        return len(self._open)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's; None while it has not said, or has none."""
        return self._tokenizer

    async def submit(self, request: GenerateRequest) -> Answers:
        """Ask; see `services.Link`."""
        self._check_up()
        if self._hello is not None:  # what is not sent keeps nobody else's words waiting
            check_count(len(request.prompt_ids), self._hello.max_model_len)
        if request.options.get("schema") is not None:
            await self._check_answer(request)
        key = next(self._keys)
        answers = Answers(self, key, request)
        if request.with_text and self._tokenizer is not None:
            answers.texts = self._texts(request)
        self._open[key] = answers
        try:
            self._put(answers.message())
            await answers.admitted
        except BaseException:
            answers.cancel()
            raise
        return answers

    async def _check_answer(self, request: GenerateRequest) -> None:
        options = request.options
        least = request.least_call or least_answer(options["schema"])
        most = options.get("max_tokens", SamplingParams().max_tokens)
        tokenizer = self._tokenizer
        # A token says at least a byte, so most requests need no look at the vocabulary.
        if tokenizer is None or max(least.bytes, least.commas) <= most:
            return
        if self._tongue is None or self._tongue[0] is not tokenizer:
            self._tongue = (tokenizer, await asyncio.to_thread(Tongue.of, tokenizer.inner))
        what = "the schema" if request.least_call is None else "the tools"
        self._tongue[1].check_answer(least, most, what)

    def _texts(self, request: GenerateRequest) -> list[AnswerText]:
        from ostinato.llm.text import AnswerText

        assert self._tokenizer is not None
        options = request.options
        stops = options.get("stop") or ()
        stops = (stops,) if isinstance(stops, str) else tuple(stops)
        decode, least = self._tokenizer.decode, options.get("min_tokens", 0)
        return [AnswerText(decode, stops, least) for _ in range(options.get("n", 1))]

    async def ask(self, name: str, **values: Any) -> Any:
        """Have the engine answer or do something; see `services.Link`."""
        self._check_up()
        key = next(self._keys)
        told: asyncio.Future[Any] = self._loop.create_future()
        self._asked[key] = told
        try:
            self._put(Ask(key, name, values))
            return await told
        finally:
            self._asked.pop(key, None)

    async def wait_first(self, seconds: float) -> None:
        """Wait for the engine's first word, at most so long; later it is there or gone."""
        if self._hello is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._greeted.wait(), seconds)

    def close(self) -> None:
        """End it; whoever waits is told."""
        self.fail_all(gone("this front end is ending"))
        self._voice.shutdown(wait=False, cancel_futures=True)

    def forget(self, answers: Answers, *, is_over: bool) -> None:
        """Nobody reads these any more; the engine is told unless they are over."""
        if self._open.pop(answers.key, None) is not None and not is_over:
            self._send([Cancel([answers.key])])

    def fail_all(self, problem: Problem) -> None:
        """End everything that is open in an error."""
        for answers in list(self._open.values()):
            answers.end(problem)
        for told in self._asked.values():
            if not told.done():
                told.set_exception(Refused(problem))

    def take(self, messages: Sequence[ToFront]) -> None:
        """Take one frame of messages; in the event loop."""
        blocks: list[tuple[Answers, Block]] = []
        for message in messages:
            if isinstance(message, Block):
                answers = self._open.get(message.key)
                if answers is not None:
                    blocks.append((answers, message))
            elif isinstance(message, Admitted):
                self._admit(message)
            elif isinstance(message, Pulse):
                self._pulse, self._pulse_at = message, monotonic()
            elif isinstance(message, Told):
                self._tell(message)
            else:
                self._greet(message)
        if blocks:
            self._say(blocks)

    def _admit(self, message: Admitted) -> None:
        answers = self._open.get(message.key)
        if answers is None:
            return
        if message.problem is None:
            answers.admit()
        else:
            answers.end(message.problem)

    def _tell(self, message: Told) -> None:
        told = self._asked.get(message.key)
        if told is None or told.done():
            return
        if message.problem is None:
            told.set_result(message.value)
        else:
            told.set_exception(Refused(message.problem))

    def _greet(self, hello: Hello) -> None:
        self._hello = hello
        self._greeted.set()

    def _say(self, blocks: list[tuple[Answers, Block]]) -> None:
        if not self._speaking and sum(len(block.token_ids) for _, block in blocks) <= _FEW_TOKENS:
            _hand_out(_spoken(blocks))
            return
        self._speaking += 1
        self._voice.submit(self._speak, blocks)

    def _speak(self, blocks: list[tuple[Answers, Block]]) -> None:
        spoken = _spoken(blocks)
        try:
            self._loop.call_soon_threadsafe(self._spoke, spoken)
        except RuntimeError:  # the loop is closed: nobody reads any more
            return

    def _spoke(self, spoken: list[tuple[Answers, TokenBlock | None]]) -> None:
        self._speaking -= 1
        _hand_out(spoken)

    def _put(self, message: ToEngine) -> None:
        """Send what a client asked for.

        Raises:
            Refused: OST5001, it has a number that no message can carry.
        """
        try:
            self._send([message])
        except OverflowError as error:
            raise Refused(_TOO_LARGE) from error

    def _send(self, messages: Sequence[ToEngine]) -> None:
        raise NotImplementedError

    def _check_up(self) -> None:
        """Refuse at once what the engine could not be asked now.

        Raises:
            Refused: It is not there.
        """
        raise NotImplementedError


def gone(why: str) -> Problem:
    """Return what is told to whoever's answer the engine can no longer give."""
    return Problem(
        "OST6020",
        f"{why}, and the answer ends here",
        "send the request again",
        "down",
        retry_s=_RESTART_S,
    )


def _spoken(blocks: list[tuple[Answers, Block]]) -> list[tuple[Answers, TokenBlock | None]]:
    return [(answers, _said(answers, block)) for answers, block in blocks]


def _said(answers: Answers, block: Block) -> TokenBlock | None:
    """Return a block with its text; None where there is no telling, which is no other's fault."""
    try:
        return _with_text(answers.texts, block)
    except Exception:  # noqa: BLE001 - whoever waits for these would wait for ever
        _log.exception("tokens have no text", extra={"request_id": answers.request.request_id})
        return None


def _with_text(texts: list[AnswerText] | None, block: Block) -> TokenBlock:
    said = ""
    ids = block.token_ids
    if texts is not None:
        text = texts[block.index]
        said, _ = text.push(ids[: len(ids) - block.mute] if block.mute else ids)
        if block.finish is not None:
            said += text.finish()
    return TokenBlock(
        block.index, said, ids, block.logprobs, block.finish, block.problem, block.timing
    )


def _hand_out(spoken: list[tuple[Answers, TokenBlock | None]]) -> None:
    for answers, block in spoken:
        if block is None:
            answers.end(_MUTE)
        else:
            answers.put(block)
