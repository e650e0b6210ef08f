"""Writes a conversation in the form a model was trained on.

A chat template is a Jinja program that comes with the model, so it runs in a sandbox, with the same
settings and the same extra functions as in transformers: the text must be the same to the letter.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ostinato.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template
    from jinja2.parser import Parser

# A template is somebody else's program.
_OF_A_TEMPLATE = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
    RecursionError,
)  # fmt: skip
_KEPT = 16
"""Templates, the latest used; a process serves few models."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    special_tokens: Mapping[str, str] | None = None,
    **variables: Any,
) -> str:
    """Return `messages` as one text.

    Args:
        template: Jinja source, as it comes with the model.
        messages: Each with "role" and "content".
        add_generation_prompt: End with the opening of the assistant's turn.
        special_tokens: What `bos_token` and its like mean inside the template.
        variables: Anything else the template reads, such as `tools`.

    Raises:
        UsageError: OST2030, the template is not valid, or it refuses these messages.
    """
    try:
        return _compiled(template).render(
            messages=messages,
            tools=variables.pop("tools", None),
            documents=variables.pop("documents", None),
            add_generation_prompt=add_generation_prompt,
            **(special_tokens or {}),
            **variables,
        )
    except _OF_A_TEMPLATE as error:
        raise UsageError(
            f"the model's chat template cannot write this conversation: {error}",
            code="OST2030",
            remedy='give messages as {"role": "user", "content": "..."} in the order the model '
            "expects",
        ) from error


@lru_cache(_KEPT)
def _compiled(template: str) -> Template:
    """Return a template that is ready to write; to make it takes longer than most conversations.

    One may write in several threads: what a template sets is kept for the one text alone.
    """
    return _environment().from_string(template)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it only passes them on."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML characters, which would change the prompt.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
