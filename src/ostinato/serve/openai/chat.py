"""`/v1/chat/completions`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from starlette.responses import Response

from ostinato.serve.openai.conversation import as_template
from ostinato.serve.openai.errors import HttpProblem, event, of_problem
from ostinato.serve.openai.fields import ChatRequest, NamedTool
from ostinato.serve.openai.frames import ChunkFrames, delta, usage
from ostinato.serve.openai.logprobs import chat_logprobs
from ostinato.serve.openai.naming import check_answers, check_model
from ostinato.serve.openai.reading import read
from ostinato.serve.openai.sampling import chat_options, check_stream, checked, form_of, schema_of
from ostinato.serve.openai.sse import DONE, EventStream
from ostinato.serve.openai.tool_calls import Arguments, CallBegan, Piece, Said, ToolCalls
from ostinato.serve.openai.tool_grammar import (
    check_parameters,
    grammar,
    least_call,
    lines_of,
    must_call,
    offered,
)
from ostinato.serve.openai.unsupported import CHAT, EFFORT, refuse, refuse_value
from ostinato.serve.services import GenerateRequest
from ostinato.serve.talk import Talk

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.llm.structured import Schema
    from ostinato.serve.least_answer import Least
    from ostinato.serve.openai.fields import Function
    from ostinato.serve.services import Services, TokenBlock
    from ostinato.serve.tokens import Tokens


async def chat(services: Services, request: Request) -> Response:
    """Answer a conversation."""
    asked = await read(request, ChatRequest)
    refuse(asked, CHAT)
    check_stream(asked)
    model = check_model(services, asked.model)
    check_answers(services, asked.n or 1)
    functions = offered(asked)
    assert services.tokens is not None
    write = partial(
        as_template,
        asked.messages,
        [tool for tool in asked.tools or () if tool.function in functions],
        speaks_tools=services.tokens.reads("tools"),
    )
    # Tools are written out as JSON, and there may be megabytes of them.
    messages, tools = await asyncio.to_thread(write) if functions else write()
    variables = _variables(asked, services.tokens)
    ids = await services.tokens.encode_chat(messages, tools, variables, model.max_model_len)
    options = chat_options(asked, model.max_model_len - len(ids), services.settings.max_new_tokens)
    given = schema_of(asked.response_format)
    lines: dict[str, str] = {}
    least: Least | None = None
    if functions:
        written, least = await asyncio.to_thread(_calls, asked, functions, form_of(given))
        options["schema"] = {"lark": written}
        lines = lines_of(written, asked, functions)
    elif given is not None:
        options["schema"] = given
    by = "tools" if functions else "response_format"
    request.scope["ostinato.names"] = {**asked.names, "schema": by, **lines}
    checked(options, {"schema": by})
    generate = GenerateRequest(
        prompt_ids=ids,
        options=options,
        priority=asked.priority or 0,
        salt=asked.cache_salt or "",
        request_id=request.scope.get("ostinato.id", ""),
        least_call=least,
    )
    talk = Talk(services, "chat", [generate])
    await talk.begin(request)
    head = {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion.chunk" if asked.stream else "chat.completion",
        "created": int(time()),
        "model": model.name,
        "system_fingerprint": model.version,
        **({"service_tier": "default"} if asked.service_tier else {}),
    }
    chats = _Chats(services, asked, with_tools=bool(functions))
    if asked.stream:
        return await _stream(talk, chats, head)
    return await _whole(talk, chats, head)


def _variables(asked: ChatRequest, tokens: Tokens) -> dict[str, Any]:
    """Return what else the chat template is to know."""
    variables = dict(asked.chat_template_kwargs or {})
    taken = next((name for name in variables if name in tokens.set_names), None)
    if taken is not None:
        raise HttpProblem(
            400,
            f"chat_template_kwargs cannot set {taken}, which the request itself says; leave it out",
            param=f"chat_template_kwargs.{taken}",
        )
    if tokens.reads("reasoning_effort"):
        if asked.reasoning_effort is not None:
            variables["reasoning_effort"] = asked.reasoning_effort
    else:
        refuse_value("reasoning_effort", asked.reasoning_effort, EFFORT)
    return variables


def _calls(
    asked: ChatRequest, functions: list[Function], form: Schema | None
) -> tuple[str, Least | None]:
    """Return the grammar of an answer that may call, or must, and the least that it has.

    One that must has no text, so that there is nothing for a form to keep.
    """
    check_parameters(asked, functions)
    required = must_call(asked)
    parallel = asked.parallel_tool_calls is not False and not _one(asked)
    written = grammar(functions, required=required, parallel=parallel, form=form)
    return written, least_call(functions, required=required, form=form)


def _one(asked: ChatRequest) -> bool:
    """Whether the choice names one function, which is then called once."""
    return isinstance(asked.tool_choice, NamedTool) and asked.tool_choice.type == "function"


@dataclass(slots=True)
class _Choice:
    """One answer so far."""

    calls: ToolCalls | None
    has_begun: bool = False
    text: list[str] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish: str = "stop"


class _Chats:
    """The answers to one chat request."""

    def __init__(self, services: Services, asked: ChatRequest, *, with_tools: bool) -> None:
        self.asked = asked
        self.tokens = services.tokens
        form = asked.response_format
        has_form = form is not None and form.type != "text"
        must = must_call(asked)
        self.choices = [
            _Choice(ToolCalls(has_form=has_form, must_call=must) if with_tools else None)
            for _ in range(asked.n or 1)
        ]

    def logprobs(self, block: TokenBlock) -> Any:
        """Return a block's, if they were asked for."""
        if block.logprobs is None or self.tokens is None:
            return None
        return chat_logprobs(self.tokens, block)

    def ids(self, block: TokenBlock) -> dict[str, list[int]]:
        """Return a block's tokens, if they were asked for."""
        return {"token_ids": block.token_ids} if self.asked.return_token_ids else {}

    @staticmethod
    def finish(choice: _Choice, reason: str) -> str:
        """Return why an answer ended, in OpenAI's words.

        One that a stop text cut in the middle of a call is no call to be made.
        """
        calls = choice.calls
        called = calls is not None and calls.count and not calls.is_cut
        return "tool_calls" if reason == "stop" and called else reason


async def _stream(talk: Talk, chats: _Chats, head: dict[str, Any]) -> Response:
    options = chats.asked.stream_options
    with_usage = bool(options and options.include_usage)
    frames = ChunkFrames(head, b'"delta":{"content":', b"}", with_usage=with_usage)
    blocks = talk.__aiter__()
    try:
        _, first = await anext(blocks)
        if first.error is not None and not first.token_ids:
            raise of_problem(first.error)
    except BaseException:
        talk.end()
        raise

    async def write() -> AsyncIterator[bytes]:
        yield _frames_of(first, chats, frames)
        async for _, block in blocks:
            yield _frames_of(block, chats, frames)
            if block.error is not None:
                return
        if with_usage:
            yield frames.usage(usage(talk.prompt_tokens, talk.new_tokens, talk.cached_tokens))
        yield DONE

    return EventStream(write(), talk.end)


def _frames_of(block: TokenBlock, chats: _Chats, frames: ChunkFrames) -> bytes:
    choice = chats.choices[block.index]
    written = []
    if not choice.has_begun:
        choice.has_begun = True
        written.append(frames.chunk(block.index, delta(role="assistant", content="")))
    more = chats.ids(block)
    if choice.calls is not None:
        pieces = choice.calls.push(block.text)
        if block.finish_reason is not None:
            pieces += choice.calls.finish()
        said = [_delta_of(piece) for piece in pieces]
    elif block.text:
        said = [delta(content=block.text)]
    else:
        said = []
    logprobs = chats.logprobs(block)
    if logprobs is not None or more:
        # Beside the first thing that is said, or nothing where all of it is held back.
        first, *said = said or [delta(content="")]
        written.append(frames.chunk(block.index, first, None, logprobs, **more))
    elif choice.calls is None and block.text:
        written.append(frames.text(block.index, block.text))
        said = []
    written += [frames.chunk(block.index, each) for each in said]
    if block.error is not None:
        written.append(event(block.error))
    elif block.finish_reason is not None:
        reason = chats.finish(choice, block.finish_reason)
        written.append(frames.chunk(block.index, delta(), reason))
    return b"".join(written)


def _delta_of(piece: Piece) -> bytes:
    if isinstance(piece, Said):
        return delta(content=piece.text)
    if isinstance(piece, CallBegan):
        function = {"name": piece.name, "arguments": ""}
        call = {"index": piece.index, "id": piece.id, "type": "function", "function": function}
        return delta(tool_calls=[call])
    return delta(tool_calls=[{"index": piece.index, "function": {"arguments": piece.text}}])


async def _whole(talk: Talk, chats: _Chats, head: dict[str, Any]) -> Response:
    try:
        async for _, block in talk:
            if block.error is not None:
                raise of_problem(block.error)
            _collect(block, chats)
    finally:
        talk.end()
    said = {
        **head,
        "choices": [_choice(index, one, chats.asked) for index, one in enumerate(chats.choices)],
        "usage": usage(talk.prompt_tokens, talk.new_tokens, talk.cached_tokens),
    }
    return Response(msgspec.json.encode(said), media_type="application/json")


def _collect(block: TokenBlock, chats: _Chats) -> None:
    choice = chats.choices[block.index]
    if choice.calls is None:
        choice.text.append(block.text)
    else:
        pieces = choice.calls.push(block.text)
        if block.finish_reason is not None:
            pieces += choice.calls.finish()
        for piece in pieces:
            _put_down(piece, choice)
    choice.token_ids += block.token_ids
    logprobs = chats.logprobs(block)
    if logprobs is not None:
        choice.logprobs += logprobs["content"]
    if block.finish_reason is not None:
        choice.finish = chats.finish(choice, block.finish_reason)


def _put_down(piece: Piece, choice: _Choice) -> None:
    if isinstance(piece, Said):
        choice.text.append(piece.text)
    elif isinstance(piece, CallBegan):
        function = {"name": piece.name, "arguments": ""}
        choice.tool_calls.append({"id": piece.id, "type": "function", "function": function})
    elif isinstance(piece, Arguments):
        choice.tool_calls[-1]["function"]["arguments"] += piece.text


def _choice(index: int, choice: _Choice, asked: ChatRequest) -> dict[str, Any]:
    text = "".join(choice.text)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if choice.tool_calls and not text.strip() else text,
        "refusal": None,
    }
    if choice.tool_calls:
        message["tool_calls"] = choice.tool_calls
    logprobs = {"content": choice.logprobs, "refusal": None} if choice.logprobs else None
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": choice.finish,
        **({"token_ids": choice.token_ids} if asked.return_token_ids else {}),
    }
