"""What the body of `/v1/responses` may hold."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import (
    Ignored,
    JsonSchemaFormat,
    Message,
    Part,
    ResponseFormat,
)


class TextFormat(Struct):
    """What an answer looks like; flat, where chat nests it."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | None = None
    description: str | None = None


class TextOptions(Struct):
    """How the text is to be."""

    format: TextFormat | None = None
    verbosity: str | None = None


class InputItem(Struct):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    type: str = "message"
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class ResponseRequest(Ignored, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/responses`.

    `metadata` is handed back; the fields from `tools` on are refused unless they say nothing.
    """

    input: str | list[InputItem]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: TextOptions | None = None
    stream: bool | None = None
    stream_options: Any = None
    truncation: Literal["disabled", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    include: list[str] | None = None
    reasoning: Any = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    max_tool_calls: int | None = None
    context_management: Any = None
    moderation: Any = None

    @property
    def format(self) -> ResponseFormat | None:
        """What the answer looks like, as chat says it."""
        form = self.text.format if self.text else None
        if form is None:
            return None
        nested = JsonSchemaFormat(form.name, form.description, form.schema, form.strict)
        return ResponseFormat(form.type, nested if form.type == "json_schema" else None)


def refuse(asked: ResponseRequest) -> None:
    """Refuse what this endpoint does not do.

    Raises:
        HttpProblem: 400.
    """
    for name in (
        "tools",
        "previous_response_id",
        "conversation",
        "prompt",
        "background",
        "context_management",
        "moderation",
        "top_logprobs",
    ):
        if getattr(asked, name):
            raise HttpProblem(
                400,
                f"/v1/responses does not do {name} here; /v1/chat/completions has tools and "
                "logprobs, and nothing is kept between two requests",
                param=name,
            )
    if asked.truncation == "auto":
        raise HttpProblem(400, "this server cuts nothing out of a prompt", param="truncation")


def messages_of(asked: ResponseRequest) -> list[Message]:
    """Return the conversation.

    Raises:
        HttpProblem: 400, it is empty, or an item is no message.
    """
    messages = [Message("system", asked.instructions)] if asked.instructions else []
    if isinstance(asked.input, str):
        return [*messages, Message("user", asked.input)]
    for item in asked.input:
        if item.type != "message":
            raise HttpProblem(400, f"this server reads messages, not {item.type}", param="input")
        messages.append(Message(item.role, item.content))
    if not asked.input:
        raise HttpProblem(400, "input holds no message", param="input")
    return messages
