"""The grammar that an answer keeps to which may, or must, call tools.

Because the engine lets nothing else come, the calls can be streamed as they are written: the text
round the arguments is fixed, and the arguments keep to the function's own schema. An answer that
may call and has a form (`response_format`) is one of the two: calls, or text that keeps to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ostinato.errors import UsageError
from ostinato.llm.structured import Schema, SchemaKind
from ostinato.llm.structured.unkept import check_kept, check_numbers
from ostinato.serve.least_answer import Least, least_answer, least_of
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import ChatRequest, Function, NamedTool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
HEAD = '\n{"name": "'
MIDDLE = '", "arguments": '
TAIL = "}\n" + CLOSE
_OPTIONS = {"lenient": False, "whitespace_pattern": r" |\n( {0,8}|\t{0,4})"}
"""One space, or a new line with its indentation, as everywhere in an answer that keeps to JSON."""


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
        raise HttpProblem(400, f"two tools are called {twice!r}; rename one", param="tools")
    choice = asked.tool_choice
    if not functions:
        _check_no_tools(asked)
        return []
    if choice == "none":
        return []
    if isinstance(choice, NamedTool):
        allowed = _allowed(choice)
        strange = next((name for name in allowed if name not in names), None)
        if strange is not None:
            raise HttpProblem(
                400,
                f"no tool is called {strange!r:.80}; there are {', '.join(names)[:200]}",
                param="tool_choice",
            )
        return [function for function in functions if function.name in allowed]
    return functions


def _check_no_tools(asked: ChatRequest) -> None:
    if asked.tool_choice not in (None, "none", "auto"):
        raise HttpProblem(
            400, "tool_choice was given and tools were not; give both", param="tool_choice"
        )
    if asked.tools is None and asked.parallel_tool_calls is not None:
        raise HttpProblem(
            400,
            "parallel_tool_calls was given and tools were not; leave it out",
            param="parallel_tool_calls",
        )


def _allowed(choice: NamedTool) -> list[str]:
    """Return the names that a choice lists."""
    if choice.type == "function" and choice.function is not None:
        return [choice.function.name]
    if choice.type == "allowed_tools" and choice.allowed_tools is not None:
        return [tool.function.name for tool in choice.allowed_tools.tools]
    raise HttpProblem(
        400,
        f"tool_choice of type {choice.type} needs {choice.type}; send it beside type",
        param=f"tool_choice.{choice.type}",
    )


def must_call(asked: ChatRequest) -> bool:
    """Return whether the answer has to be a call."""
    choice = asked.tool_choice
    if isinstance(choice, NamedTool) and choice.allowed_tools is not None:
        return choice.allowed_tools.mode == "required"
    return choice not in (None, "none", "auto")


def grammar(
    functions: Sequence[Function],
    *,
    required: bool,
    parallel: bool,
    form: Schema | None = None,
) -> str:
    """Return the grammar in llguidance's dialect of Lark.

    Args:
        required: Whether the answer must be a call.
        parallel: Whether it may be several.
        form: What an answer keeps to that is no call; None: any text, also before a call.

    Raises:
        HttpProblem: 400, a choice of `form` that would read as a call.
    """
    bodies = " | ".join(f"call{index}" for index in range(len(functions)))
    more = " (next body)*" if parallel else ""
    calls = f"{_text(OPEN)} body{more}"
    lines = [f"body: {bodies}", f"next: {_text(chr(10) + OPEN)}"]
    if required:
        lines.insert(0, f"start: {calls}")
    elif form is not None:
        lines.insert(0, f"start: answer | {calls}")
        lines += _answer(form)
    else:
        # Two ways to begin are followed side by side: text in which no call is opened, and text
        # that ends where one is.
        lines.insert(0, f"start: FREE | opened body{more}")
        lines.append(f"FREE: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/")
        lines.append(f"opened[suffix={_text(OPEN)}]: /(?s:.*)/")
    for index, function in enumerate(functions):
        head = _text(f"{HEAD}{function.name}{MIDDLE}")
        lines.append(f"call{index}: {head} args{index} {_text(TAIL)}")
        lines.append(f"args{index}: %json {_schema(function)}")
    return "\n".join(lines) + "\n"


def least_call(
    functions: Sequence[Function], *, required: bool, form: Schema | None = None
) -> Least | None:
    """Return what every answer to such a grammar has; None where any text is one."""
    if not required and form is None:
        return None
    several = [
        Least(len(f"{OPEN}{HEAD}{one.name}{MIDDLE}{TAIL}"), MIDDLE.count(",")).plus(
            least_answer(_parameters(one))
        )
        for one in functions
    ]
    if form is not None and not required:
        several.append(_least_text(form))
    return least_of(several)


def _least_text(form: Schema) -> Least:
    if form.kind is SchemaKind.CHOICES:
        return least_answer({"choices": json.loads(form.text)})
    return least_answer(json.loads(form.text) if form.kind is SchemaKind.JSON else None)


def check_parameters(asked: ChatRequest, functions: Sequence[Function]) -> None:
    """Refuse parameters that a call would break though a grammar can be made of them.

    Raises:
        HttpProblem: 400, OST5062.
    """
    for at, tool in enumerate(asked.tools or ()):
        if tool.function not in functions or tool.function.parameters is None:
            continue
        try:
            check_numbers(tool.function.parameters)
            check_kept(tool.function.parameters)
        except UsageError as error:
            raise HttpProblem(
                400,
                f"{error.args[0]}; {error.remedy}",
                code=error.code,
                param=f"tools[{at}].function.parameters",
            ) from error


def lines_of(written: str, asked: ChatRequest, functions: Sequence[Function]) -> dict[str, str]:
    """Return of which field of a request each line of its grammar was made, by "line 3"."""
    place = {id(tool.function): at for at, tool in enumerate(asked.tools or ())}
    fields = {
        f"args{index}": f"tools[{place[id(function)]}].function.parameters"
        for index, function in enumerate(functions)
    }
    fields |= {"answer": "response_format", "ANSWER": "response_format"}
    rules = [line.partition(":")[0] for line in written.splitlines()]
    return {f"line {at}": fields[rule] for at, rule in enumerate(rules, start=1) if rule in fields}


def _answer(form: Schema) -> list[str]:
    """Return the rules of text that keeps to a form, and does not begin as a call does."""
    if form.kind is SchemaKind.JSON:
        return [f"answer: %json {json.dumps(json.loads(form.text) | {'x-guidance': _OPTIONS})}"]
    if form.kind is SchemaKind.CHOICES:
        choices = json.loads(form.text)
        if any(choice.startswith(OPEN) for choice in choices):
            raise HttpProblem(
                400,
                f"a choice begins with {OPEN}, as a call of a tool does; leave out it or the tools",
                param="response_format.choice",
            )
        return [f"answer: {' | '.join(map(_text, choices))}"]
    # In a grammar a slash ends an expression, and a line's end the rule.
    pattern = re.sub(r"(?s)\\.|/|\n", _slashed, form.text)
    return ["answer: ANSWER", f"ANSWER: /{pattern}/ & ~/{OPEN}(?s:.*)/"]


def _slashed(found: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(found.group(), found.group())


def _text(text: str) -> str:
    return json.dumps(text)


def _schema(function: Function) -> str:
    return json.dumps(_parameters(function) | {"x-guidance": _OPTIONS})


def _parameters(function: Function) -> dict[str, Any]:
    """Return the schema of a call's arguments, with what goes without saying."""
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    schema: dict[str, Any] = dict(nothing if function.parameters is None else function.parameters)
    schema.setdefault("type", "object")
    return schema
