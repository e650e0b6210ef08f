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
_TEXTS = ("text", "input_text", "output_text", "refusal")
_MEDIA = ("image_url", "input_audio", "file", "file_id", "file_data", "file_url", "filename")
_INTRODUCTION = (
    "You may call functions to help with the user's request. Their signatures:\n<tools>\n{tools}\n"
    "</tools>\nTo call one, answer with its name and arguments as JSON:\n<tool_call>\n"
    '{{"name": <name>, "arguments": <arguments>}}\n</tool_call>'
)


def as_template(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    *,
    speaks_tools: bool,
    field: str = "messages",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return messages and tools for a chat template.

    Args:
        speaks_tools: Whether it knows tools.
        field: What the request calls the messages.

    Raises:
        HttpProblem: 400, a message that holds no text.
    """
    plain = [_plain(message, f"{field}[{at}]") for at, message in enumerate(messages)]
    listed = [msgspec.to_builtins(tool) for tool in tools]
    for tool in listed:
        tool["function"] = {k: v for k, v in tool["function"].items() if v is not None}
    if speaks_tools:
        return plain, listed or None
    plain = [_in_words(message) for message in plain]
    return (_introduced(plain, listed) if listed else plain), None


def _plain(message: Message, place: str) -> dict[str, Any]:
    _check(message, place)
    said: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "content": text_of(message.content, f"{place}.content") or message.refusal or "",
    }
    for name in ("name", "tool_call_id"):
        value = getattr(message, name)
        if value is not None:
            said[name] = value
    thought = message.reasoning if message.reasoning_content is None else message.reasoning_content
    if thought is not None:
        said["reasoning_content"] = thought
    calls = list(message.tool_calls or ())
    if message.function_call is not None:
        calls.append(Called(function=message.function_call))
    if calls:
        said["tool_calls"] = [
            _called(call, f"{place}.tool_calls[{at}]") for at, call in enumerate(calls)
        ]
    return said


def _check(message: Message, place: str) -> None:
    if message.audio is not None:
        raise _not_text("audio", f"{place}.audio")
    calls = message.tool_calls or message.function_call
    if calls and message.role != "assistant":
        raise HttpProblem(
            400,
            f"a message of the {message.role} calls a tool; send it as the assistant's",
            param=f"{place}.tool_calls",
        )
    if message.content is None and not calls and message.refusal is None:
        raise HttpProblem(400, "a message says nothing; send its content", param=f"{place}.content")


def text_of(content: str | list[Part] | None, place: str) -> str:
    """Return the text of a message.

    Args:
        place: What the request calls it.

    Raises:
        HttpProblem: 400, it holds something else.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_text_of(part, f"{place}[{at}]") for at, part in enumerate(content))


def _text_of(part: Part, place: str) -> str:
    if part.type not in _TEXTS:
        raise _not_text(part.type, place)
    other = next((name for name in _MEDIA if getattr(part, name) is not None), None)
    if other is not None:
        raise _not_text(other, f"{place}.{other}")
    name = "refusal" if part.type == "refusal" else "text"
    text = getattr(part, name)
    if text is None:
        raise HttpProblem(
            400, f"a part of type {part.type} needs {name}; send it", param=f"{place}.{name}"
        )
    return str(text)


def _not_text(what: str, place: str) -> HttpProblem:
    return HttpProblem(
        400, f"this server reads text alone, not {what:.60}; leave it out", param=place
    )


def _called(call: Called, place: str) -> dict[str, Any]:
    if call.function is None:
        raise HttpProblem(
            400, "a call needs function, with name and arguments; send it", param=place
        )
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise HttpProblem(
            400,
            f"the arguments of call {call.id!r:.60} are no JSON; send them as they came",
            param=f"{place}.function.arguments",
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
