"""The grammar that an answer keeps to which may, or must, call tools.

Because the engine lets nothing else come, the calls can be streamed as they are written: the text
round the arguments is fixed, and the arguments keep to the function's own schema.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import ChatRequest, Function, NamedTool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
HEAD = '\n{"name": "'
MIDDLE = '", "arguments": '
TAIL = "}\n" + CLOSE
_OPTIONS = {"lenient": False, "whitespace_pattern": r"[ \n\t]{1,16}"}
"""For blanks without end a model that likes them would never come to its next word."""


def offered(asked: ChatRequest) -> list[Function]:
    """Return the functions that the answer may call, none if it may call none.

    Raises:
        HttpProblem: 400, a choice that names none of the tools, two of one name, or a choice
            without tools.
    """
    functions = [tool.function for tool in asked.tools or ()]
    names = [function.name for function in functions]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HttpProblem(400, f"two tools are called {twice!r}", param="tools")
    choice = asked.tool_choice
    if choice in (None, "none", "auto"):
        return [] if choice == "none" else functions
    if not functions:
        raise HttpProblem(400, "tool_choice was given and tools were not", param="tool_choice")
    if isinstance(choice, NamedTool):
        chosen = [each for each in functions if each.name == choice.function.name]
        if not chosen:
            raise HttpProblem(
                400, f"no tool is called {choice.function.name!r}", param="tool_choice"
            )
        return chosen
    return functions


def must_call(asked: ChatRequest) -> bool:
    """Return whether the answer has to be a call."""
    return asked.tool_choice not in (None, "none", "auto")


def grammar(functions: Sequence[Function], *, required: bool, parallel: bool) -> str:
    """Return the grammar in llguidance's dialect of Lark."""
    bodies = " | ".join(f"call{index}" for index in range(len(functions)))
    more = " (next body)*" if parallel else ""
    lines = [
        f"start: {_text(OPEN)} body{more}" if required else f"start: FREE | opened body{more}",
        f"body: {bodies}",
        f"next: {_text(chr(10) + OPEN)}",
    ]
    if not required:
        # Two ways to begin are followed side by side: text in which no call is opened, and text
        # that ends where one is.
        lines.append(f"FREE: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/")
        lines.append(f"opened[suffix={_text(OPEN)}]: /(?s:.*)/")
    for index, function in enumerate(functions):
        head = _text(f"{HEAD}{function.name}{MIDDLE}")
        lines.append(f"call{index}: {head} args{index} {_text(TAIL)}")
        lines.append(f"args{index}: %json {_schema(function)}")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    return json.dumps(text)


def _schema(function: Function) -> str:
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    schema: dict[str, Any] = dict(nothing if function.parameters is None else function.parameters)
    schema.setdefault("type", "object")
    schema["x-guidance"] = _OPTIONS
    return json.dumps(schema)
