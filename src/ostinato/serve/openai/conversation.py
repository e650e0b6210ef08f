"""Messages as OpenAI's clients send them, as a model's chat template reads them.

A template that knows tools is given them as they are. One that does not gets them in words, in the
form that most models were trained on, so that tools work with any model that converses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import Called, Message, Part, Tool

_ROLES = {"developer": "system", "function": "tool"}
_INTRODUCTION = (
    "You may call functions to help with the user's request. Their signatures:\n<tools>\n{tools}\n"
    "</tools>\nTo call one, answer with its name and arguments as JSON:\n<tool_call>\n"
    '{{"name": <name>, "arguments": <arguments>}}\n</tool_call>'
)


def as_template(
    messages: Sequence[Message], tools: Sequence[Tool], *, speaks_tools: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return messages and tools for a chat template.

    Args:
        speaks_tools: Whether it knows tools.

    Raises:
        HttpProblem: 400, a message that holds no text.
    """
    plain = [_plain(message) for message in messages]
    listed = [msgspec.to_builtins(tool) for tool in tools]
    for tool in listed:
        tool["function"] = {k: v for k, v in tool["function"].items() if v is not None}
    if speaks_tools:
        return plain, listed or None
    plain = [_in_words(message) for message in plain]
    return (_introduced(plain, listed) if listed else plain), None


def _plain(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "content": text_of(message.content),
    }
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = getattr(message, name)
        if value is not None:
            said[name] = value
    if message.tool_calls:
        said["tool_calls"] = [_called(call) for call in message.tool_calls]
    return said


def text_of(content: str | list[Part] | None) -> str:
    """Return the text of a message.

    Raises:
        HttpProblem: 400, it holds something else.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in ("text", "input_text", "output_text", "refusal") or text is None:
            raise HttpProblem(
                400, f"this server reads text alone, not {part.type}", param="messages"
            )
        texts.append(text)
    return "".join(texts)


def _called(call: Called) -> dict[str, Any]:
    if call.function is None:
        raise HttpProblem(400, "this server knows calls of functions alone", param="messages")
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise HttpProblem(
            400, f"the arguments of call {call.id!r} are no JSON", param="messages"
        ) from error
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _in_words(message: dict[str, Any]) -> dict[str, Any]:
    """Say calls and their results as text."""
    if message["role"] == "tool":
        return {
            "role": "user",
            "content": f"<tool_response>\n{message['content']}\n</tool_response>",
        }
    calls = message.pop("tool_calls", [])
    said = [f"<tool_call>\n{json.dumps(call['function'])}\n</tool_call>" for call in calls]
    message["content"] = "\n".join(filter(None, [message["content"], *said]))
    return message


def _introduced(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    words = _INTRODUCTION.format(tools="\n".join(json.dumps(tool) for tool in tools))
    if messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{words}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]
