"""Why a request went to the model's own `generate`: the one list of such reasons.

Handing a request over is an outcome, not an error: the answer is the model's own, only not
replayed. `admission.py` decides about the model, `request.py` and `plan.py` about one request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Delegated(Enum):
    """One word per cause; the value is the stable, hyphenated word that reports use."""

    # The model.
    ENCODER_DECODER = "encoder-decoder"
    OWN_GENERATE = "own-generate"
    FORWARD_SIGNATURE = "forward-signature"
    ATTENTION_KIND = "attention-kind"
    CACHE_KIND = "cache-kind"
    LENGTH_DEPENDENT_ROPE = "length-dependent-rope"
    DRAWS_IN_FORWARD = "draws-in-forward"
    SPREAD_OVER_DEVICES = "spread-over-devices"
    STATIC_STEP_DISAGREES = "static-step-disagrees"
    STATIC_STEP_FAILS = "static-step-fails"

    # The request.
    SEARCH_MODE = "search-mode"
    CUSTOM_PROCESSOR = "custom-processor"
    CUSTOM_STOPPING = "custom-stopping"
    ASSISTED = "assisted"
    EMBEDDINGS_GIVEN = "embeddings-given"
    STRUCTURED_OUTPUT = "structured-output"
    UNSUPPORTED_OPTION = "unsupported-option"
    INVALID_REQUEST = "invalid-request"
    LONGER_THAN_CACHE = "longer-than-cache"
    LONGER_THAN_POSITIONS = "longer-than-positions"
    CACHE_OVER_MEMORY = "cache-over-memory"
    AUTOCAST_ON = "autocast-on"
    BUSY = "busy"
    CLOSED = "closed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Delegation:
    """One hand-over: the reason, and the value seen in one plain sentence."""

    reason: Delegated
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class DelegateError(Exception):
    """Leaves the preparation of a request; `Accelerated` catches it and calls the model."""

    def __init__(self, reason: Delegated, detail: str) -> None:
        super().__init__(str(reason))
        self.delegation = Delegation(reason, detail)
