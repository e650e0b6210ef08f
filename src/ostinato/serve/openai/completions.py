"""`/v1/completions`: one prompt or several, as text or as token ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from starlette.responses import Response

from ostinato.serve.openai.errors import HttpProblem, event, of_problem
from ostinato.serve.openai.fields import CompletionRequest
from ostinato.serve.openai.frames import ChunkFrames, text_field, usage
from ostinato.serve.openai.logprobs import completion_logprobs
from ostinato.serve.openai.naming import check_answers, check_model
from ostinato.serve.openai.reading import read
from ostinato.serve.openai.sampling import check_stream, completion_options
from ostinato.serve.openai.sse import DONE, EventStream
from ostinato.serve.openai.unsupported import COMPLETION, refuse
from ostinato.serve.services import GenerateRequest
from ostinato.serve.talk import Talk

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services, TokenBlock

Prompt = str | list[int]


async def complete(services: Services, request: Request) -> Response:
    """Go on from a prompt."""
    asked = await read(request, CompletionRequest)
    refuse(asked, COMPLETION)
    check_stream(asked)
    model = check_model(services, asked.model)
    prompts = prompts_of(asked.prompt)
    check_answers(
        services, len(prompts) * max(1, asked.n or 1), "n" if len(prompts) == 1 else "prompt"
    )
    generates = []
    for prompt in prompts:
        ids = prompt if isinstance(prompt, list) else await _encode(services, prompt)
        if not ids:
            raise HttpProblem(
                400, "an empty prompt has nothing to go on from; send a token", param="prompt"
            )
        options = completion_options(
            asked, model.max_model_len - len(ids), services.settings.max_new_tokens
        )
        generates.append(
            GenerateRequest(
                prompt_ids=ids,
                options=options,
                priority=asked.priority or 0,
                salt=asked.cache_salt or "",
                request_id=request.scope.get("ostinato.id", ""),
                with_text=services.tokens is not None,
            )
        )
    talk = Talk(services, "completions", generates)
    await talk.begin(request)
    head = {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time()),
        "model": model.name,
        "system_fingerprint": model.version,
    }
    said = _Completions(services, asked, await _echoes(services, asked, prompts))
    return await (_stream if asked.stream else _whole)(talk, said, head)


async def _encode(services: Services, prompt: str) -> list[int]:
    assert services.tokens is not None
    return await services.tokens.encode(prompt, services.model.max_model_len)


def prompts_of(given: str | Sequence[Any]) -> list[Prompt]:
    """Return the prompts of a request: a text, ids, or a list of either.

    Raises:
        HttpProblem: 400, there are none, or texts and ids are mixed in one prompt.
    """
    if isinstance(given, str):
        return [given]
    given = list(given)
    if not given:
        raise HttpProblem(400, "there is no prompt; send a text or token ids", param="prompt")
    kinds = set(map(type, given))  # JSON's own: of the ids of a long prompt there is one
    if kinds == {int}:
        return [given]
    if int in kinds:
        raise HttpProblem(
            400, "a prompt is a text or token ids, not both; send a list of one", param="prompt"
        )
    return given


async def _echoes(
    services: Services, asked: CompletionRequest, prompts: Sequence[Prompt]
) -> list[str]:
    if not asked.echo:
        return [""] * len(prompts)
    assert services.tokens is not None
    return [one if isinstance(one, str) else await services.tokens.decode(one) for one in prompts]


@dataclass(slots=True)
class _Choice:
    """One answer so far."""

    echo: str
    has_begun: bool = False
    letters: int = 0
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: dict[str, list[Any]] | None = None
    finish: str = "stop"


class _Completions:
    """The answers to one request."""

    def __init__(self, services: Services, asked: CompletionRequest, echoes: list[str]) -> None:
        self.asked = asked
        self.tokens = services.tokens
        self.answers = asked.n or 1
        self.choices = [_Choice(echo) for echo in echoes for _ in range(self.answers)]

    def take(self, prompt: int, block: TokenBlock) -> tuple[int, _Choice, str, Any]:
        """Return where a block belongs, what it says, and its log probabilities."""
        index = prompt * self.answers + block.index
        choice = self.choices[index]
        said = block.text
        logprobs = None
        if block.logprobs is not None and self.tokens is not None:
            logprobs = completion_logprobs(self.tokens, block, choice.letters)
            choice.letters += sum(map(len, logprobs["tokens"]))
        if not choice.has_begun:
            choice.has_begun = True
            said = choice.echo + said
        return index, choice, said, logprobs


async def _stream(talk: Talk, said: _Completions, head: dict[str, Any]) -> Response:
    options = said.asked.stream_options
    with_usage = bool(options and options.include_usage)
    frames = ChunkFrames(head, b'"text":', b"", with_usage=with_usage)
    blocks = talk.__aiter__()
    try:
        at, first = await anext(blocks)
        if first.error is not None and not first.token_ids:
            raise of_problem(first.error)
    except BaseException:
        talk.end()
        raise

    async def write() -> AsyncIterator[bytes]:
        yield _frames_of(at, first, said, frames)
        async for prompt, block in blocks:
            yield _frames_of(prompt, block, said, frames)
            if block.error is not None:
                return
        if with_usage:
            yield frames.usage(usage(talk.prompt_tokens, talk.new_tokens, talk.cached_tokens))
        yield DONE

    return EventStream(write(), talk.end)


def _frames_of(prompt: int, block: TokenBlock, said: _Completions, frames: ChunkFrames) -> bytes:
    index, _, text, logprobs = said.take(prompt, block)
    more = {"token_ids": block.token_ids} if said.asked.return_token_ids else {}
    if block.error is not None:
        return (frames.text(index, text) if text else b"") + event(block.error)
    if block.finish_reason is None and logprobs is None and not more:
        return frames.text(index, text)  # also without text: it shows that a token came
    return frames.chunk(index, text_field(text), block.finish_reason, logprobs, **more)


async def _whole(talk: Talk, said: _Completions, head: dict[str, Any]) -> Response:
    try:
        async for prompt, block in talk:
            if block.error is not None:
                raise of_problem(block.error)
            _, choice, text, logprobs = said.take(prompt, block)
            choice.text.append(text)
            choice.token_ids += block.token_ids
            if logprobs is not None:
                known = choice.logprobs = choice.logprobs or {name: [] for name in logprobs}
                for name, values in logprobs.items():
                    known[name] += values
            choice.finish = block.finish_reason or choice.finish
    finally:
        talk.end()
    body = {
        **head,
        "choices": [_choice(at, one, said.asked) for at, one in enumerate(said.choices)],
        "usage": usage(talk.prompt_tokens, talk.new_tokens, talk.cached_tokens),
    }
    return Response(msgspec.json.encode(body), media_type="application/json")


def _choice(index: int, choice: _Choice, asked: CompletionRequest) -> dict[str, Any]:
    return {
        "index": index,
        "text": "".join(choice.text),
        "logprobs": choice.logprobs,
        "finish_reason": choice.finish,
        **({"token_ids": choice.token_ids} if asked.return_token_ids else {}),
    }
