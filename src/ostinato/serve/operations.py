"""What can be asked of a service, by what it serves; `description` writes it as OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ostinato.serve.admin import ProfileRequest, WeightsRequest
from ostinato.serve.embeddings.routes import EmbeddingRequest
from ostinato.serve.open_inference.generate import GenerateBody
from ostinato.serve.open_inference.rest_bodies import InferBody
from ostinato.serve.openai.fields import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from ostinato.serve.openai.response_fields import ResponseRequest

if TYPE_CHECKING:
    from ostinato.serve.services import Services


class Answer(Enum):
    """What an answer's body is."""

    JSON = ("application/json",)
    JSON_OR_EVENTS = ("application/json", "text/event-stream")
    EVENTS = ("text/event-stream",)
    TENSORS = ("application/json", "application/octet-stream")
    TEXT = ("text/plain",)
    NOTHING = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked.

    Attributes:
        path: With the names of its parts in braces.
        body: What reads the request's body; None if it has none.
        is_open: Whether it needs no key.
    """

    method: str
    path: str
    summary: str
    body: type | None = None
    answer: Answer = Answer.JSON
    is_open: bool = False


ALWAYS = (
    Operation("get", "/livez", "Whether the process is alive", is_open=True),
    Operation("get", "/readyz", "Whether to send requests here", is_open=True),
    Operation("get", "/healthz", "Whether work moves", is_open=True),
    Operation("get", "/metrics", "Counts and times", answer=Answer.TEXT, is_open=True),
    Operation("get", "/openapi.json", "This description"),
    Operation("get", "/v1/models", "List what is served"),
    Operation("get", "/v1/models/{name}", "Describe a model"),
)
TEXTS = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Answer a conversation",
        ChatRequest,
        Answer.JSON_OR_EVENTS,
    ),
    Operation(
        "post", "/v1/completions", "Go on from prompts", CompletionRequest, Answer.JSON_OR_EVENTS
    ),
    Operation("post", "/v1/responses", "Answer a text", ResponseRequest, Answer.JSON_OR_EVENTS),
    Operation("post", "/tokenize", "Tokens of a text", TokenizeRequest),
    Operation("post", "/detokenize", "Text of tokens", DetokenizeRequest),
    Operation("post", "/admin/weights", "Change the weights, or go back", WeightsRequest),
    Operation("post", "/admin/profile", "Record steps to a trace", ProfileRequest),
    Operation("get", "/admin/counts", "How the engine stands"),
)
EMBEDDINGS = (Operation("post", "/v1/embeddings", "Vectors of texts", EmbeddingRequest),)
_MODELS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
INFERENCE = (
    Operation("get", "/v2", "Describe the server"),
    Operation("get", "/v2/health/live", "Whether it is alive", answer=Answer.NOTHING, is_open=True),
    Operation(
        "get", "/v2/health/ready", "Whether it is ready", answer=Answer.NOTHING, is_open=True
    ),
    *(Operation("get", base, "Describe a model") for base in _MODELS),
    *(
        Operation("get", f"{base}/ready", "Whether a model is ready", answer=Answer.NOTHING)
        for base in _MODELS
    ),
    *(
        Operation("post", f"{base}/infer", "Outputs of inputs", InferBody, Answer.TENSORS)
        for base in _MODELS
    ),
)
GENERATION = (
    *(Operation("post", f"{base}/generate", "Go on from a text", GenerateBody) for base in _MODELS),
    *(
        Operation(
            "post", f"{base}/generate_stream", "As it is written", GenerateBody, Answer.EVENTS
        )
        for base in _MODELS
    ),
)


def operations(services: Services) -> tuple[Operation, ...]:
    """Return what can be asked of a service; any other path of ours answers 404 or 422 there."""
    found = list(ALWAYS)
    if services.link is not None:
        found += TEXTS
    if services.embedder is not None:
        found += EMBEDDINGS
    if services.link is not None or services.callable is not None:
        found += INFERENCE
    if services.link is not None:
        found += GENERATION
    return tuple(found)
