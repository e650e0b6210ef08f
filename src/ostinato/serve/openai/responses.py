"""`/v1/responses`, for text: one answer, whole or as events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from starlette.responses import Response

from ostinato.serve.openai.conversation import as_template
from ostinato.serve.openai.errors import of_problem
from ostinato.serve.openai.errors import said as said_of
from ostinato.serve.openai.naming import check_model
from ostinato.serve.openai.reading import read
from ostinato.serve.openai.response_fields import ResponseRequest, messages_of, refuse
from ostinato.serve.openai.sampling import checked, draws, new_tokens, schema_of
from ostinato.serve.openai.sse import EventStream
from ostinato.serve.services import GenerateRequest
from ostinato.serve.talk import Talk

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Model, Services, TokenBlock


async def respond(services: Services, request: Request) -> Response:
    """Answer a text or a conversation."""
    asked = await read(request, ResponseRequest)
    refuse(asked)
    model = check_model(services, asked.model)
    assert services.tokens is not None
    messages, _ = as_template(messages_of(asked), (), speaks_tools=True, field="input")
    ids = await services.tokens.encode_chat(messages, room_tokens=model.max_model_len)
    talk = Talk(
        services,
        "responses",
        [
            GenerateRequest(
                prompt_ids=ids,
                options=_options(asked, services, model.max_model_len - len(ids)),
                request_id=request.scope.get("ostinato.id", ""),
            )
        ],
    )
    await talk.begin(request)
    answer = _Response(asked, model, talk)
    if asked.stream:
        return await _stream(answer)
    try:
        async for _, block in talk:
            if block.error is not None:
                raise of_problem(block.error)
            answer.take(block)
    finally:
        talk.end()
    return Response(msgspec.json.encode(answer.body()), media_type="application/json")


def _options(asked: ResponseRequest, services: Services, room: int) -> dict[str, Any]:
    most = new_tokens(asked.max_output_tokens, room, services.settings.max_new_tokens)
    options: dict[str, Any] = {"max_tokens": most, **draws(asked)}
    schema = schema_of(asked.format)
    if schema is not None:
        options["schema"] = schema
    return checked(options, {"max_tokens": "max_output_tokens", "schema": "text.format"})


class _Response:
    """One response as it grows."""

    def __init__(self, asked: ResponseRequest, model: Model, talk: Talk) -> None:
        self.talk = talk
        self.item = f"msg_{uuid4().hex}"
        self._asked, self._model = asked, model
        self._id = f"resp_{uuid4().hex}"
        self._created = int(time())
        self._texts: list[str] = []
        self._finish: str | None = None

    @property
    def text(self) -> str:
        """What has been said."""
        return "".join(self._texts)

    def take(self, block: TokenBlock) -> None:
        """Add a block."""
        self._texts.append(block.text)
        self._finish = block.finish_reason or self._finish

    def part(self, text: str) -> dict[str, Any]:
        """Return a part of the message."""
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def message(self, status: str, text: str | None) -> dict[str, Any]:
        """Return the message."""
        return {
            "id": self.item,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [] if text is None else [self.part(text)],
        }

    def body(self) -> dict[str, Any]:
        """Return the whole of it, as it stands."""
        asked = self._asked
        is_cut = self._finish == "length"
        over = self._finish is not None
        status = ("incomplete" if is_cut else "completed") if over else "in_progress"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self._model.name,
            "output": [self.message(status, self.text)] if over else [],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "text": {"format": self._format()},
            "tool_choice": asked.tool_choice or "auto",
            "tools": [],
            "truncation": "disabled",
            **({"service_tier": "default"} if asked.service_tier else {}),
            **({"usage": self._usage()} if over else {}),
        }

    def _format(self) -> dict[str, Any]:
        """Return what the answer keeps to, as it was asked for."""
        form = self._asked.text.format if self._asked.text else None
        if form is None:
            return {"type": "text"}
        said: dict[str, Any] = msgspec.to_builtins(form)
        if form.type != "json_schema":
            return {"type": form.type}
        return {"schema": {"type": "object"}, **{k: v for k, v in said.items() if v is not None}}

    def _usage(self) -> dict[str, Any]:
        talk = self.talk
        return {
            "input_tokens": talk.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": talk.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": talk.new_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": talk.prompt_tokens + talk.new_tokens,
        }


class _Events:
    """Writes events, numbered."""

    def __init__(self, answer: _Response) -> None:
        self._where = {"item_id": answer.item, "output_index": 0, "content_index": 0}
        self._count = 0

    def event(self, name: str, **fields: Any) -> bytes:
        """Return one event."""
        said = {"type": name, **fields, "sequence_number": self._count}
        self._count += 1
        return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(said) + b"\n\n"

    def in_part(self, name: str, **fields: Any) -> bytes:
        """Return one event of the message's text."""
        return self.event(name, **self._where, **fields)


async def _stream(answer: _Response) -> Response:
    blocks = answer.talk.__aiter__()
    try:
        _, first = await anext(blocks)
        if first.error is not None and not first.token_ids:
            raise of_problem(first.error)
    except BaseException:
        answer.talk.end()
        raise
    events = _Events(answer)

    async def write() -> AsyncIterator[bytes]:
        yield _opening(answer, events)
        yield _said(answer, events, first)
        async for _, block in blocks:
            yield _said(answer, events, block)
            if block.error is not None:
                return
        yield _ending(answer, events)

    return EventStream(write(), answer.talk.end)


def _opening(answer: _Response, events: _Events) -> bytes:
    return b"".join(
        (
            events.event("response.created", response=answer.body()),
            events.event("response.in_progress", response=answer.body()),
            events.event(
                "response.output_item.added",
                output_index=0,
                item=answer.message("in_progress", None),
            ),
            events.in_part("response.content_part.added", part=answer.part("")),
        )
    )


def _said(answer: _Response, events: _Events, block: TokenBlock) -> bytes:
    answer.take(block)
    said = b""
    if block.text:
        said = events.in_part("response.output_text.delta", delta=block.text, logprobs=[])
    if block.error is not None:
        message = said_of(block.error)
        said += events.event("error", code=block.error.code, message=message, param=None)
    return said


def _ending(answer: _Response, events: _Events) -> bytes:
    body = answer.body()
    text = answer.text
    status = str(body["status"])
    return b"".join(
        (
            events.in_part("response.output_text.done", text=text, logprobs=[]),
            events.in_part("response.content_part.done", part=answer.part(text)),
            events.event(
                "response.output_item.done", output_index=0, item=answer.message(status, text)
            ),
            events.event(f"response.{status}", response=body),
        )
    )
