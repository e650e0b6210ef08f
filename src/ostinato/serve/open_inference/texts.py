"""A model that writes text, behind the protocol: texts in, texts out, as many as came in.

The tensors are `text_input` and `text_output`, of the datatype BYTES; what else the request wants
(`max_tokens`, `temperature`, `stop`, …) are its parameters, by the names of `SamplingParams`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ostinato.errors import OstinatoError
from ostinato.serve.open_inference.inference import (
    BYTES,
    InferReply,
    InferRequest,
    cut_texts,
    decoded,
    join_texts,
    pick,
)
from ostinato.serve.open_inference.metadata import Metadata
from ostinato.serve.open_inference.refusals import Refusal, malformed, refusal_of
from ostinato.serve.openai.errors import HttpProblem, of_problem
from ostinato.serve.openai.sampling import checked, new_tokens
from ostinato.serve.services import GenerateRequest
from ostinato.serve.talk import Talk

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services

TEXT_IN: Final = "text_input"
TEXT_OUT: Final = "text_output"
_MOST_TOKENS: Final = 20
"""Where a request does not say; the protocol's own number."""
_OURS: Final = frozenset({"binary_data_output", "priority", "timeout", "details"})


class TextModel:
    """A model that writes; see `metadata.InferenceModel`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def metadata(self) -> Metadata:
        """Describe it."""
        model = self._services.model
        return Metadata(
            model.name,
            model.version,
            "ostinato",
            {TEXT_IN: (BYTES, (-1,))},
            {TEXT_OUT: (BYTES, (-1,))},
            {"max_model_len": str(model.max_model_len)},
        )

    def is_ready(self) -> bool:
        """Whether it can be asked now."""
        return self._services.health.ready().is_good

    async def infer(self, asked: InferRequest, request: Request | None) -> InferReply:
        """Answer every text of `text_input`."""
        asked.check_parameters()
        model = self._services.model
        if set(asked.inputs) != {TEXT_IN} or asked.inputs[TEXT_IN].datatype != BYTES:
            raise malformed(f"this model takes one input, {TEXT_IN} of datatype BYTES")
        array = asked.inputs[TEXT_IN]
        prompts = [decoded(TEXT_IN, text) for text in cut_texts(TEXT_IN, array)]
        if not prompts:
            raise malformed("there is no text to answer")
        talk = await begin(
            self._services, "infer", prompts, asked.parameters, request, asked.priority
        )
        texts = [""] * len(prompts)
        try:
            async for place, block in talk:
                if block.error is not None:
                    raise refusal_of(of_problem(block.error))
                texts[place] += block.text
        finally:
            talk.end()
        outputs = {TEXT_OUT: join_texts([text.encode() for text in texts], array.shape)}
        return InferReply(model.name, model.version, pick(outputs, asked.outputs), asked.id)


async def begin(
    services: Services,
    kind: str,
    prompts: Sequence[str],
    parameters: Mapping[str, Any],
    request: Request | None,
    priority: int = 0,
) -> Talk:
    """Have the engine begin to answer.

    Raises:
        Refusal: It does not, or the request is not one that it could answer.
    """
    if len(prompts) > services.settings.max_answers:
        most = services.settings.max_answers
        raise malformed(f"{len(prompts)} texts are to be answered, and at most {most} are at once")
    try:
        asked = [
            await _asked(services, prompt, parameters, priority, request) for prompt in prompts
        ]
        talk = Talk(services, kind, asked)
        await talk.begin(request)
    except (OstinatoError, HttpProblem) as error:
        raise refusal_of(error) from error
    return talk


async def _asked(
    services: Services,
    prompt: str,
    parameters: Mapping[str, Any],
    priority: int,
    request: Request | None,
) -> GenerateRequest:
    model = services.model
    if not model.max_model_len or services.tokens is None:
        raise Refusal(503, "the engine is being started; try again in a few seconds", 5.0)
    ids = await services.tokens.encode(prompt, model.max_model_len)
    options = {name: value for name, value in parameters.items() if name not in _OURS}
    if options.get("n", 1) != 1:
        raise malformed("each text gets one answer here; send it several times for several")
    wanted = options.get("max_tokens", _MOST_TOKENS)
    if isinstance(wanted, int):
        room = model.max_model_len - len(ids)
        options["max_tokens"] = new_tokens(wanted, room, services.settings.max_new_tokens)
    return GenerateRequest(
        prompt_ids=ids,
        options=checked(options),
        priority=priority,
        request_id="" if request is None else request.scope.get("ostinato.id", ""),
    )
