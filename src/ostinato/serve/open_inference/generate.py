"""The protocol's text extension: `generate`, and `generate_stream` as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from ostinato.serve.open_inference.models import find_model
from ostinato.serve.open_inference.refusals import Refusal, refusal_of
from ostinato.serve.open_inference.texts import begin
from ostinato.serve.openai.errors import of_problem
from ostinato.serve.openai.sse import EventStream
from ostinato.serve.openai.wording import of_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services, TokenBlock
    from ostinato.serve.talk import Talk
    from ostinato.serve.tokens import Tokens

_LARGE: Final = 64 * 1024
"""A body from this size on is read in a thread."""
_STATUS: Final[Mapping[int, int]] = {400: 422, 500: 424}
"""The text extension's own: a request that is wrong is 422, an answer that failed 424."""


class GenerateBody(msgspec.Struct):
    """A request; `parameters` by the names of `SamplingParams`."""

    text_input: str
    id: str = ""
    parameters: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(GenerateBody)


@dataclass(slots=True)
class _Said:
    """An answer so far.

    Attributes:
        head: What every reply begins with.
        tokens: For details; None where none are wanted.
    """

    head: Mapping[str, str]
    tokens: Tokens | None
    has_stops: bool
    text: list[str] = field(default_factory=list)
    listed: list[dict[str, Any]] = field(default_factory=list)
    finish: str = "length"

    def take(self, block: TokenBlock) -> list[dict[str, Any]]:
        """Add a block; return its tokens in detail.

        Raises:
            Refusal: The answer failed.
        """
        if block.error is not None:
            raise refusal_of(of_problem(block.error))
        self.text.append(block.text)
        listed = [] if self.tokens is None else _listed(self.tokens, block)
        self.listed += listed
        if block.finish_reason is not None:
            self.finish = _finish(block, self.tokens, has_stops=self.has_stops)
        return listed


async def generate(services: Services, request: Request) -> Response:
    """Answer a text, all at once."""
    try:
        said, talk = await _begin(services, request)
        try:
            async for _, block in talk:
                said.take(block)
        finally:
            talk.end()
    except Refusal as refusal:
        raise _of_text(refusal) from refusal
    reply: dict[str, Any] = {"text_output": "".join(said.text), **said.head}
    if said.tokens is not None:
        reply["details"] = {"finish_reason": said.finish, "logprobs": said.listed}
    return Response(msgspec.json.encode(reply), media_type="application/json")


async def generate_stream(services: Services, request: Request) -> Response:
    """Answer a text as it is written."""
    try:
        said, talk = await _begin(services, request)
    except Refusal as refusal:
        raise _of_text(refusal) from refusal
    blocks = talk.__aiter__()
    try:
        _, first = await anext(blocks)
        frame = _frame(said, first)  # a request that fails at once is answered with a status
    except BaseException as error:
        talk.end()
        if isinstance(error, Refusal):
            raise _of_text(error) from error
        raise

    async def write() -> AsyncIterator[bytes]:
        yield frame
        async for _, block in blocks:
            try:
                yield _frame(said, block)
            except Refusal as refusal:
                yield b"data: " + msgspec.json.encode({"error": str(refusal)}) + b"\n\n"
                return

    return EventStream(write(), talk.end)


async def _begin(services: Services, request: Request) -> tuple[_Said, Talk]:
    named = request.path_params
    metadata = find_model(services, named["model"], named.get("version", "")).metadata()
    if services.link is None:
        raise Refusal(422, f"the model {metadata.name!r} writes no text; ask it to infer")
    body = await request.body()
    asked = _read(body) if len(body) < _LARGE else await asyncio.to_thread(_read, body)
    parameters = dict(asked.parameters)
    tokens = services.tokens if parameters.pop("details", False) is True else None
    if tokens is not None:
        parameters["logprobs"] = 0
    talk = await begin(services, "generate", [asked.text_input], parameters, request)
    head = {"model_name": metadata.name, "model_version": metadata.version}
    return _Said(head, tokens, bool(parameters.get("stop"))), talk


def _read(body: bytes) -> GenerateBody:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(422, of_body(error, GenerateBody, body)[0]) from error


def _frame(said: _Said, block: TokenBlock) -> bytes:
    """Return a block as events; in detail there is one for each token, the last with the text."""
    listed = said.take(block)
    frames: list[dict[str, Any]] = [
        {"text_output": "", **said.head, "details": {"token": token}} for token in listed
    ] or [{"text_output": "", **said.head}]
    frames[-1]["text_output"] = block.text
    if block.finish_reason is not None and said.tokens is not None:
        frames[-1].setdefault("details", {})["finish_reason"] = said.finish
    return b"".join(b"data: " + msgspec.json.encode(frame) + b"\n\n" for frame in frames)


def _listed(tokens: Tokens, block: TokenBlock) -> list[dict[str, Any]]:
    known = block.logprobs or [(0.0, [])] * len(block.token_ids)
    return [
        {
            "id": token,
            "text": tokens.piece(token),
            "logprob": logprob,
            "special": _is_special(tokens, token),
        }
        for token, (logprob, _) in zip(block.token_ids, known, strict=False)
    ]


def _finish(block: TokenBlock, tokens: Tokens | None, *, has_stops: bool) -> str:
    if block.finish_reason != "stop":
        return "length"
    is_end = tokens is not None and block.token_ids and _is_special(tokens, block.token_ids[-1])
    return "stop_sequence" if has_stops and not is_end else "eos_token"


def _is_special(tokens: Tokens, token: int) -> bool:
    added = tokens.tokenizer.inner.get_added_tokens_decoder().get(token)
    return bool(added is not None and added.special)


def _of_text(refusal: Refusal) -> Refusal:
    return Refusal(_STATUS.get(refusal.status, refusal.status), str(refusal), refusal.retry_s)
