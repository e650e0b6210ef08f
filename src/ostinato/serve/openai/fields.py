"""What the bodies of OpenAI's requests may hold, as msgspec reads them.

A field is obeyed; or it changes no answer (`Noted`) and is taken; or `unsupported` refuses it by
name unless it says nothing. Any other is a misspelling and is refused, inside a field too.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

_Label = Annotated[str, Meta(max_length=64)]
_Metadata = Annotated[
    dict[_Label, Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
Temperature = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 2})]
TopP = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 1})]
"""Told here; checked by `sampling.draws`, which says what was sent."""
_Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_Verbosity = Literal["low", "medium", "high"]


class PromptCacheOptions(Struct, forbid_unknown_fields=True):
    """How long a prompt should stay computed; here the least used ones go first."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None


class Noted(Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of OpenAI's that change no answer: who asks, and what is kept or cached where.

    `store` and `service_tier` are refused where they ask for more than there is.
    """

    user: str | None = None
    store: bool | None = None
    metadata: _Metadata | None = None
    service_tier: str | None = None
    safety_identifier: _Label | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None


class StreamOptions(Struct, forbid_unknown_fields=True):
    """How a stream is sent."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Sampled(Noted, forbid_unknown_fields=True, kw_only=True):
    """What all requests for text share.

    The fields after `stream_options` are not OpenAI's; vLLM has them by the same names.
    """

    model: str | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
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
    priority: int | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None


class JsonSchemaFormat(Struct, forbid_unknown_fields=True):
    """A JSON schema that an answer keeps to."""

    name: str = ""
    description: str | None = None
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | None = None


class ResponseFormat(Struct, forbid_unknown_fields=True):
    """What an answer looks like."""

    type: Literal["text", "json_object", "json_schema", "regex", "choice"]
    json_schema: JsonSchemaFormat | None = None
    regex: str | None = None
    choice: list[str] | None = None


class Function(Struct, forbid_unknown_fields=True):
    """A function that the model may call."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, forbid_unknown_fields=True):
    """Something that the model may use."""

    type: Literal["function"]
    function: Function


class NamedFunction(Struct, forbid_unknown_fields=True):
    """One of the functions."""

    name: str


class FunctionName(Struct, forbid_unknown_fields=True):
    """One of the tools, by its function's name."""

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Struct, forbid_unknown_fields=True):
    """The tools that may be used, or of which one must be."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[FunctionName], Meta(min_length=1)]


class NamedTool(Struct, forbid_unknown_fields=True):
    """The one tool that must be used, or some of the tools."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class Part(Struct, forbid_unknown_fields=True):
    """A part of a message; what is no text is read so that it can be refused by its type.

    `annotations` and `logprobs` come back with what the model said, and say nothing to it.
    """

    type: str
    text: str | None = None
    refusal: str | None = None
    annotations: Any = None
    logprobs: Any = None
    prompt_cache_breakpoint: Any = None
    image_url: Any = None
    input_audio: Any = None
    file: Any = None
    file_id: Any = None
    file_data: Any = None
    file_url: Any = None
    filename: Any = None
    detail: Any = None


class CalledFunction(Struct, forbid_unknown_fields=True):
    """A call that was made: its arguments are JSON text."""

    name: str
    arguments: str


class Called(Struct, forbid_unknown_fields=True):
    """A call that the assistant made earlier."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction | None = None
    index: int | None = None


class Message(Struct, forbid_unknown_fields=True):
    """One message of a conversation.

    `function_call` is the older form of `tool_calls`; `reasoning` is another name of
    `reasoning_content`; `annotations` come back with what the model said.
    """

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: CalledFunction | None = None
    annotations: Any = None
    audio: Any = None


class ChatRequest(Sampled, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/chat/completions`."""

    names: ClassVar[dict[str, str]] = {
        "prompt": "messages",
        "schema": "response_format",
        "logprobs": "top_logprobs",
    }

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
    verbosity: _Verbosity | None = None
    reasoning_effort: _Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(Sampled, forbid_unknown_fields=True, kw_only=True):
    """The body of `/v1/completions`."""

    names: ClassVar[dict[str, str]] = {
        "prompt": "prompt",
        "schema": "response_format",
        "logprobs": "logprobs",
    }

    prompt: str | list[str | int | list[int]]
    max_tokens: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    response_format: ResponseFormat | None = None


class TokenizeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `/tokenize`: a text or a conversation."""

    names: ClassVar[dict[str, str]] = {"prompt": "messages"}

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: list[Tool] | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None


class DetokenizeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `/detokenize`."""

    names: ClassVar[dict[str, str]] = {"prompt": "tokens"}

    tokens: list[int]
    model: str | None = None
