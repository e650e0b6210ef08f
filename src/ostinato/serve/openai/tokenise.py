"""`/tokenize` and `/detokenize`, as vLLM has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from ostinato.serve.openai.conversation import as_template
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.fields import DetokenizeRequest, TokenizeRequest
from ostinato.serve.openai.naming import check_model
from ostinato.serve.openai.reading import read
from ostinato.serve.openai.unsupported import TOKENIZE, refuse

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services


async def tokenize(services: Services, request: Request) -> Response:
    """Return the ids of a text or a conversation."""
    asked = await read(request, TokenizeRequest)
    model = check_model(services, asked.model)
    assert services.tokens is not None
    if (asked.prompt is None) == (asked.messages is None):
        raise HttpProblem(
            400, "there must be a prompt or messages; give one of them", param="prompt"
        )
    if asked.messages is None and asked.tools:
        raise HttpProblem(400, "tools are for messages; leave them out", param="tools")
    refuse(asked, TOKENIZE)
    if asked.messages is not None:
        messages, tools = as_template(
            asked.messages, asked.tools or (), speaks_tools=services.tokens.reads("tools")
        )
        ids = await services.tokens.encode_chat(messages, tools)
    else:
        ids = await services.tokens.encode(asked.prompt or "")
    said = {"tokens": ids, "count": len(ids), "max_model_len": model.max_model_len}
    if asked.return_token_strs:
        said["token_strs"] = [services.tokens.piece(token) for token in ids]
    return Response(msgspec.json.encode(said), media_type="application/json")


async def detokenize(services: Services, request: Request) -> Response:
    """Return the text of ids."""
    asked = await read(request, DetokenizeRequest)
    check_model(services, asked.model)
    assert services.tokens is not None
    text = await services.tokens.decode(asked.tokens)
    return Response(msgspec.json.encode({"prompt": text}), media_type="application/json")
