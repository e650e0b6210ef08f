"""The engine: continuous batching over a decode state that lives on the device.

A request (`request`) waits in the scheduler (`scheduler`), is granted pages of keys and values
(`kv`), is prefilled in chunks and then runs in a row of the resident state until it stops. `core`
is one step of that; `engine` is what callers see, and `offline` what scripts see.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.llm.answers import Choice, Delta, Metrics, Output
    from ostinato.llm.config import EngineConfig
    from ostinato.llm.engine import Engine
    from ostinato.llm.faults import EngineDown
    from ostinato.llm.offline import LLM
    from ostinato.llm.params import SamplingParams
    from ostinato.llm.refusals import PromptTooLong, QueueFull
    from ostinato.llm.request import FinishReason, Request
    from ostinato.llm.stream import Stream

_HOMES = {
    "LLM": "offline",
    "Choice": "answers",
    "Delta": "answers",
    "Engine": "engine",
    "EngineConfig": "config",
    "EngineDown": "faults",
    "FinishReason": "request",
    "Metrics": "answers",
    "Output": "answers",
    "PromptTooLong": "refusals",
    "QueueFull": "refusals",
    "Request": "request",
    "SamplingParams": "params",
    "Stream": "stream",
}

__all__ = [
    "LLM",
    "Choice",
    "Delta",
    "Engine",
    "EngineConfig",
    "EngineDown",
    "FinishReason",
    "Metrics",
    "Output",
    "PromptTooLong",
    "QueueFull",
    "Request",
    "SamplingParams",
    "Stream",
]


def __getattr__(name: str) -> Any:
    # Lazy, so that the pure parts can be had without torch.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
