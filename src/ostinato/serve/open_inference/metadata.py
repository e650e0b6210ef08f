"""What a model behind the protocol says of itself, and what it can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.open_inference.inference import InferReply, InferRequest


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model says of itself; shapes by tensor's name, with -1 for any size.

    Attributes:
        platform: What runs it.
        properties: Anything more.
    """

    name: str
    version: str
    platform: str
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    outputs: Mapping[str, tuple[str, tuple[int, ...]]]
    properties: Mapping[str, str] = field(default_factory=dict)


class InferenceModel(Protocol):
    """A model behind the protocol."""

    def metadata(self) -> Metadata:
        """Describe it.

        Raises:
            Refusal: It is not ready yet.
        """
        ...

    def is_ready(self) -> bool:
        """Whether it can be asked now."""
        ...

    async def infer(self, asked: InferRequest, request: Request | None) -> InferReply:
        """Answer.

        Args:
            request: Of HTTP, to see its client go away; None where the caller is cancelled then.

        Raises:
            Refusal: It does not.
        """
        ...
