"""From the fields of a request to the engine's options: plain functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from ostinato.errors import UsageError
from ostinato.llm.structured import Schema, read_schema
from ostinato.serve.known_params import read_params
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import ChatRequest, CompletionRequest, ResponseFormat, Sampled
from ostinato.serve.openai.response_fields import ResponseRequest

_SAME = (
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "top_k",
    "min_p",
    "min_tokens",
    "stop_token_ids",
    "ignore_eos",
    "repetition_penalty",
)
_MOST_TOKENS = 16
"""Of a completion that does not say; OpenAI's own number."""
_MOST = {"temperature": 2, "top_p": 1}
"""OpenAI's own bounds, from 0 on; the engine's are others, and `/v2` has those."""
_LEAST_TOP_P = 1e-9
"""Of a top_p of 0, which takes the likeliest token alone."""
_MOST_COUNTED = 2**63 - 1
_PART_OF = re.compile(r"^an? \w+ of ")
_TOKEN = re.compile(r"[0-9]{1,19}")


def chat_options(asked: ChatRequest, room: int, most_new_tokens: int | None) -> dict[str, Any]:
    """Return the options of a chat request, but for what its answer keeps to.

    Args:
        room: Tokens that the model has left behind the prompt; a larger max_tokens is cut to them.
        most_new_tokens: What the service allows; None: as much as fits.

    Raises:
        HttpProblem: 400, a value out of its range, or fields that exclude each other.
    """
    newer = asked.max_completion_tokens
    name = "max_tokens" if newer is None else "max_completion_tokens"
    options = _options(asked, asked.max_tokens if newer is None else newer, room, most_new_tokens)
    if asked.logprobs:
        options["logprobs"] = asked.top_logprobs or 0
    elif asked.top_logprobs:
        raise HttpProblem(
            400, "top_logprobs needs logprobs to be true; send both", param="top_logprobs"
        )
    return checked(options, {"max_tokens": name, "logprobs": "top_logprobs"})


def completion_options(
    asked: CompletionRequest, room: int, most_new_tokens: int | None
) -> dict[str, Any]:
    """Return the options of a completion request; see `chat_options`."""
    if asked.best_of is not None and asked.best_of != (asked.n or 1):
        raise HttpProblem(
            400,
            "this server gives all n answers and drops none; leave best_of out, or send it as n",
            param="best_of",
        )
    if asked.echo and asked.logprobs is not None:
        raise HttpProblem(400, "logprobs of a prompt are not given; leave out echo", param="echo")
    wanted = _MOST_TOKENS if asked.max_tokens is None else asked.max_tokens
    options = _options(asked, wanted, room, most_new_tokens)
    if asked.logprobs is not None:
        options["logprobs"] = asked.logprobs
    schema = schema_of(asked.response_format)
    if schema is not None:
        options["schema"] = schema
    return checked(options, {"schema": "response_format"})


def _options(
    asked: Sampled, wanted: int | None, room: int, most_new_tokens: int | None
) -> dict[str, Any]:
    options = {name: value for name in _SAME if (value := getattr(asked, name)) is not None}
    options |= draws(asked)
    if asked.logit_bias:
        options["logit_bias"] = _biases(asked.logit_bias)
    options["max_tokens"] = new_tokens(wanted, room, most_new_tokens)
    return options


def draws(asked: Sampled | ResponseRequest) -> dict[str, float]:
    """Return temperature and top_p as the engine takes them, where they are given.

    Raises:
        HttpProblem: 400, one is out of its range.
    """
    found: dict[str, float] = {}
    for name, most in _MOST.items():
        value = getattr(asked, name)
        if value is None:
            continue
        if not 0 <= value <= most:
            wanted = f"from 0 to {most}"
            said = f"{name} must be {wanted}, got {value:g}; send a number {wanted}"
            raise HttpProblem(400, said, code="OST5001", param=name)
        found[name] = value
    if found.get("top_p") == 0:
        found["top_p"] = _LEAST_TOP_P
    return found


def new_tokens(wanted: int | None, room: int, most_new_tokens: int | None) -> int:
    """Return the most tokens of an answer: what was asked for, as far as there is room."""
    most = max(1, room if most_new_tokens is None else min(room, most_new_tokens))
    # What is less than 1, or more than any count, is told by the engine's own check.
    return most if wanted is None else wanted if wanted > _MOST_COUNTED else min(wanted, most)


def check_stream(asked: Sampled) -> None:
    """Refuse options of a stream that is none, and frames that are padded against eavesdroppers.

    Raises:
        HttpProblem: 400.
    """
    options = asked.stream_options
    if options is None:
        return
    if not asked.stream:
        raise HttpProblem(
            400, "stream_options needs stream to be true; send both", param="stream_options"
        )
    if options.include_obfuscation:
        raise HttpProblem(
            400,
            "frames are not padded here; send include_obfuscation as false, or leave it out",
            param="stream_options.include_obfuscation",
        )


def _biases(given: dict[str, float]) -> dict[int, float]:
    strange = next((token for token in given if not _TOKEN.fullmatch(token)), None)
    if strange is not None:
        raise HttpProblem(
            400,
            f'logit_bias has the key {strange!r:.60}; send token ids such as "42" as its keys',
            param="logit_bias",
        )
    return {int(token): bias for token, bias in given.items()}


def schema_of(form: ResponseFormat | None) -> Any:
    """Return what an answer keeps to, as the engine reads it; None if it is free.

    Raises:
        HttpProblem: 400, a form without its content.
    """
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    if form.type == "regex" and form.regex:
        return {"regex": form.regex}
    if form.type == "choice" and form.choice:
        return {"choices": form.choice}
    if form.type == "json_schema" and form.json_schema is not None:
        schema = form.json_schema.schema
        return {"type": "json_object"} if schema is UNSET else schema
    raise HttpProblem(
        400,
        f"response_format of type {form.type} needs {form.type}; send it beside type",
        param=f"response_format.{form.type}",
    )


def form_of(given: Any) -> Schema | None:
    """Return what `schema_of` returned as the engine will read it.

    Raises:
        HttpProblem: 400, it is of no known kind, or too large.
    """
    try:
        return read_schema(given)
    except UsageError as error:
        said = f"{error.args[0]}; {error.remedy}"
        raise HttpProblem(400, said, code=error.code, param="response_format") from error


def checked(options: dict[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return options that the engine will take.

    Args:
        names: What the client calls an option, where that is not its name.

    Raises:
        HttpProblem: 400, a value is out of its range.
    """
    try:
        read_params(options)
    except UsageError as error:
        said = f"{error.args[0]}; {error.remedy}"
        option = _option_of(error, options)
        name = (names or {}).get(option, option)
        if name != option and error.code == "OST5001":
            said = said.replace(option, name)
        raise HttpProblem(400, said, code=error.code, param=name or None) from error
    return options


def _option_of(error: UsageError, options: dict[str, Any]) -> str:
    if error.code in ("OST5060", "OST5062"):
        return "schema"
    words = _PART_OF.sub("", str(error.args[0])).split(" ", 1)
    return words[0] if words[0] in options else ""
