"""What can be asked over the protocol: a callable of tensors, or a model that writes text."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ostinato.errors import OstinatoError
from ostinato.serve.callable import CallableService, Fault, fault_of
from ostinato.serve.open_inference.inference import InferReply, InferRequest, pick
from ostinato.serve.open_inference.metadata import InferenceModel, Metadata
from ostinato.serve.open_inference.refusals import Refusal, no_model, refusal_of
from ostinato.serve.open_inference.texts import TextModel
from ostinato.serve.openai.errors import HttpProblem
from ostinato.serve.openai.naming import known_model

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Services

_LONGEST_S = 60.0
"""For a request that does not say itself how long its answer is of use."""
_ENDS = {Fault.FULL: "shed", Fault.CLOSING: "shed"}


class CallableModel:
    """A callable of tensors."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._callable: CallableService = services.callable

    def metadata(self) -> Metadata:
        """Describe it; see `metadata.InferenceModel`."""
        try:
            told = self._callable.description
        except OstinatoError as error:
            raise refusal_of(error) from error
        model = self._services.model
        return Metadata(
            model.name,
            model.version,
            "pytorch",
            {name: (spec.datatype, spec.shape) for name, spec in told.inputs.items()},
            {name: (spec.datatype, spec.shape) for name, spec in told.outputs.items()},
            {
                "max_batch_size": str(told.max_batch),
                "recorded_batch_sizes": ",".join(map(str, told.batch_sizes)),
            },
        )

    def is_ready(self) -> bool:
        """Whether it can be asked now."""
        return self._callable.is_ready

    async def infer(self, asked: InferRequest, request: Request | None) -> InferReply:
        """Answer; see `metadata.InferenceModel`."""
        asked.check_parameters()
        told = self.metadata()
        pick(told.outputs, asked.outputs)  # type: ignore[arg-type]  # for the names alone
        metrics, began = self._services.metrics, monotonic()
        metrics.request_began("infer")
        reason = "abort"
        try:
            outputs = await self._callable.infer(
                asked.inputs, priority=asked.priority, timeout_s=asked.timeout_s or _LONGEST_S
            )
            reason = "stop"
        except OstinatoError as error:
            reason = _ENDS.get(fault_of(error), "error")
            if fault_of(error) is Fault.FULL:
                metrics.shed("queue-full")
            raise refusal_of(error) from error
        finally:
            metrics.request_ended(reason, monotonic() - began, None, kind="infer")
        return InferReply(told.name, told.version, pick(outputs, asked.outputs), asked.id)


def model_of(services: Services) -> InferenceModel:
    """Return what this service serves.

    Raises:
        Refusal: Nothing that the protocol can ask.
    """
    if services.callable is not None:
        return CallableModel(services)
    if services.link is not None:
        return TextModel(services)
    raise Refusal(404, "this server serves no model over this protocol")


def find_model(services: Services, name: str, version: str) -> InferenceModel:
    """Return the model that a request means; without a version, the one there is.

    Raises:
        Refusal: 404, it is not here; 503, an engine that is being started has not said what it is.
    """
    model = model_of(services)
    try:
        told_name = known_model(services).name
    except HttpProblem as starting:
        raise refusal_of(starting) from starting
    if name != told_name:
        raise no_model(name, version, told_name, services.model.version)
    if version and version != model.metadata().version:
        raise no_model(name, version, told_name, model.metadata().version)
    return model
