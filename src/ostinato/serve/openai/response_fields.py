"""What the body of `/v1/responses` may hold."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import (
    JsonSchemaFormat,
    Message,
    Noted,
    Part,
    ResponseFormat,
    Temperature,
    TopP,
)
from ostinato.serve.openai.unsupported import EFFORT, RESPONSE, Unless, refuse_value
from ostinato.serve.openai.unsupported import refuse as refuse_fields

_Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
_VERBOSITY = Unless("no model here is told how much to say; send medium", ("medium",))


class TextFormat(Struct, forbid_unknown_fields=True):
    """What an answer looks like; flat, where chat nests it."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | None = None
    description: str | None = None


class TextOptions(Struct, forbid_unknown_fields=True):
    """How the text is to be."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Struct, forbid_unknown_fields=True):
    """How much the model thinks first; what is not thought needs no summary and no context."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class ResponseStreamOptions(Struct, forbid_unknown_fields=True):
    """How a stream is sent."""

    include_obfuscation: bool | None = None


class InputItem(Struct, forbid_unknown_fields=True):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None
    type: str = "message"
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: str | None = None


class ResponseRequest(Noted, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/responses`.

    `metadata` is handed back. `include` and `max_tool_calls` concern tools and thoughts, of which
    there are none.
    """

    names: ClassVar[dict[str, str]] = {"prompt": "input", "schema": "text.format"}

    input: str | list[InputItem]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    text: TextOptions | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    truncation: Literal["disabled", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    include: list[_Include] | None = None
    reasoning: Reasoning | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    background_options: Any = None
    max_tool_calls: int | None = None
    context_management: list[Any] | None = None
    moderation: Any = None
    access_programs: Any = None
    image: Any = None

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
    refuse_fields(asked, RESPONSE)
    if asked.text is not None:
        refuse_value("text.verbosity", asked.text.verbosity, _VERBOSITY)
    if asked.reasoning is not None:
        refuse_value("reasoning.effort", asked.reasoning.effort, EFFORT)
    if "message.output_text.logprobs" in (asked.include or ()):
        raise HttpProblem(
            400,
            "/v1/chat/completions has logprobs; leave message.output_text.logprobs out",
            param="include",
        )
    if asked.stream_options is not None and not asked.stream:
        raise HttpProblem(
            400, "stream_options needs stream to be true; send both", param="stream_options"
        )
    if asked.stream_options is not None and asked.stream_options.include_obfuscation:
        raise HttpProblem(
            400,
            "frames are not padded here; send include_obfuscation as false, or leave it out",
            param="stream_options.include_obfuscation",
        )


def messages_of(asked: ResponseRequest) -> list[Message]:
    """Return the conversation.

    Raises:
        HttpProblem: 400, it is empty, or an item is no message.
    """
    messages = [Message("system", asked.instructions)] if asked.instructions else []
    if isinstance(asked.input, str):
        return [*messages, Message("user", asked.input)]
    for at, item in enumerate(asked.input):
        if item.type != "message":
            raise HttpProblem(
                400,
                f"this server reads messages, not {item.type!r:.60}; leave it out",
                param=f"input[{at}].type",
            )
        if item.role is None:
            raise HttpProblem(
                400, "a message has no role; send user or another", param=f"input[{at}].role"
            )
        messages.append(Message(item.role, item.content))
    if not asked.input:
        raise HttpProblem(400, "input holds no message; send one", param="input")
    return messages
