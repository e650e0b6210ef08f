"""What the bodies of OpenAI's requests may hold, as msgspec reads them.

A field that would change the answer and that nothing here can do is refused by name; one that
changes nothing (`user`, `store`) is taken and ignored; any other is a misspelling and is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType


class Ignored(Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of OpenAI's that change nothing here."""

    user: Any = None
    store: Any = None
    metadata: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    prompt_cache_options: Any = None
    verbosity: Any = None
    reasoning_effort: Any = None


class Sampled(Ignored, forbid_unknown_fields=True, kw_only=True):
    """What all requests for text share.

    The fields after `stream_options` are not OpenAI's; vLLM has them by the same names.
    """

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    repetition_penalty: float | None = None
    priority: int = 0
    cache_salt: str = ""
    return_token_ids: bool | None = None


class StreamOptions(Struct, forbid_unknown_fields=True):
    """How a stream is sent."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchemaFormat(Struct):
    """A JSON schema that an answer keeps to."""

    name: str = ""
    description: str | None = None
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | None = None


class ResponseFormat(Struct):
    """What an answer looks like."""

    type: Literal["text", "json_object", "json_schema", "regex", "choice"]
    json_schema: JsonSchemaFormat | None = None
    regex: str | None = None
    choice: list[str] | None = None


class Function(Struct):
    """A function that the model may call."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct):
    """Something that the model may use."""

    type: Literal["function"]
    function: Function


class NamedFunction(Struct):
    """One of the functions."""

    name: str


class NamedTool(Struct):
    """The one tool that must be used."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class Part(Struct):
    """A part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None


class CalledFunction(Struct):
    """A call that was made: its arguments are JSON text."""

    name: str
    arguments: str


class Called(Struct):
    """A call that the assistant made earlier."""

    id: str = ""
    type: str = "function"
    function: CalledFunction | None = None


class Message(Struct):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


class ChatRequest(Sampled, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[str] | None = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    functions: Any = None
    function_call: Any = None
    moderation: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(Sampled, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/completions`."""

    prompt: str | list[str | int | list[int]]
    max_tokens: int | None = 16
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    response_format: ResponseFormat | None = None


class TokenizeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `/tokenize`: a text or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: list[Tool] | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None


class DetokenizeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `/detokenize`."""

    tokens: list[int]
    model: str | None = None
