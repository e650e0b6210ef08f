"""From the fields of a request to the engine's options: plain functions."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from ostinato.errors import UsageError
from ostinato.llm.params import SamplingParams
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import ChatRequest, CompletionRequest, ResponseFormat, Sampled

_SAME = (
    "temperature",
    "top_p",
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
_NOT_DONE = {
    "audio": "sound",
    "prediction": "predicted outputs",
    "web_search_options": "web search",
    "functions": "functions; it takes tools",
    "function_call": "functions; it takes tools",
    "moderation": "moderation",
}


def chat_options(asked: ChatRequest, room: int, most_new_tokens: int | None) -> dict[str, Any]:
    """Return the options of a chat request.

    Args:
        room: Tokens that the model has left behind the prompt.
        most_new_tokens: What the service allows; None: as much as fits.

    Raises:
        HttpProblem: 400, something that is not done here, or fields that exclude each other.
    """
    for name, what in _NOT_DONE.items():
        if getattr(asked, name) is not None:
            raise HttpProblem(400, f"this server does not do {what}", param=name)
    if asked.modalities not in (None, ["text"]):
        raise HttpProblem(400, "this server answers in text alone", param="modalities")
    wanted = asked.max_completion_tokens
    wanted = asked.max_tokens if wanted is None else wanted
    options = _options(asked, wanted, room, most_new_tokens)
    if asked.logprobs:
        options["logprobs"] = asked.top_logprobs or 0
    elif asked.top_logprobs:
        raise HttpProblem(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    schema = schema_of(asked.response_format)
    if schema is not None:
        options["schema"] = schema
    return checked(options)


def completion_options(
    asked: CompletionRequest, room: int, most_new_tokens: int | None
) -> dict[str, Any]:
    """Return the options of a completion request; see `chat_options`."""
    if asked.suffix:
        raise HttpProblem(400, "this server does not fill in before a suffix", param="suffix")
    if asked.best_of is not None and asked.best_of != (asked.n or 1):
        raise HttpProblem(400, "this server gives all n answers and drops none", param="best_of")
    if asked.echo and asked.logprobs is not None:
        raise HttpProblem(400, "logprobs of a prompt are not given; leave out echo", param="echo")
    options = _options(asked, asked.max_tokens, room, most_new_tokens)
    if asked.logprobs is not None:
        options["logprobs"] = asked.logprobs
    schema = schema_of(asked.response_format)
    if schema is not None:
        options["schema"] = schema
    return checked(options)


def _options(
    asked: Sampled, wanted: int | None, room: int, most_new_tokens: int | None
) -> dict[str, Any]:
    options = {name: value for name in _SAME if (value := getattr(asked, name)) is not None}
    if asked.logit_bias:
        options["logit_bias"] = _biases(asked.logit_bias)
    most = max(1, room if most_new_tokens is None else min(room, most_new_tokens))
    # What is less than 1 is told by the engine's own check.
    options["max_tokens"] = most if wanted is None else min(wanted, most)
    return options


def _biases(given: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError as error:
        raise HttpProblem(
            400, f"logit_bias maps token ids to numbers: {error}", param="logit_bias"
        ) from error


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
        400, f"response_format of type {form.type} needs {form.type}", param="response_format"
    )


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """Return options that the engine will take.

    Raises:
        HttpProblem: 400, a value is out of its range.
    """
    try:
        SamplingParams.read(options)
    except UsageError as error:
        word = str(error.args[0]).split(" ", 1)[0]
        param = word if word in options else None
        raise HttpProblem(
            400, f"{error.args[0]}; {error.remedy}", code=error.code, param=param
        ) from error
    return options
