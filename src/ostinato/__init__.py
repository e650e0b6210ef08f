"""Record one step of any PyTorch callable, and replay it safely.

General layout, from the bottom up:

- `errors`, `units`, `instruments`, `explain`: words, numbers and events; no torch.
- `device`, `measure`: what the machine is, and how long things take on it.
- `graphs`: the heart: `graphed(fn)` records and replays any callable.
- `checkpoints`: folders, safetensors, GGUF, tokenizers and chat templates.
- `hf`: `accelerate(model)`, the drop-in for transformers; a thin client of `graphs`.
- `llm`: the engine, `LLM(model)`: continuous batching with the decode state on the device.
- `bench`, `cli`: the benchmarks and the `ostinato` command.

Only public names live here, and each is imported when it is first used, so that reading an
explanation or an error never waits for torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.errors import (
        CaptureError,
        InternalError,
        OstinatoError,
        ResourceError,
        StaleLease,
        UsageError,
    )
    from ostinato.graphs import (
        Buckets,
        Decision,
        Lease,
        OstinatoWarning,
        Outcome,
        Reason,
        graphed,
    )
    from ostinato.hf import accelerate
    from ostinato.llm import LLM, SamplingParams

__version__: str

__all__ = [  # noqa: RUF022 - it takes LLM for a constant
    "Buckets",
    "CaptureError",
    "Decision",
    "InternalError",
    "LLM",
    "Lease",
    "OstinatoError",
    "OstinatoWarning",
    "Outcome",
    "Reason",
    "ResourceError",
    "SamplingParams",
    "StaleLease",
    "UsageError",
    "__version__",
    "accelerate",
    "graphed",
]

_HOMES = {
    "LLM": "ostinato.llm",
    "Buckets": "ostinato.graphs",
    "CaptureError": "ostinato.errors",
    "Decision": "ostinato.graphs",
    "InternalError": "ostinato.errors",
    "Lease": "ostinato.graphs",
    "OstinatoError": "ostinato.errors",
    "OstinatoWarning": "ostinato.graphs",
    "Outcome": "ostinato.graphs",
    "Reason": "ostinato.graphs",
    "ResourceError": "ostinato.errors",
    "SamplingParams": "ostinato.llm",
    "StaleLease": "ostinato.errors",
    "UsageError": "ostinato.errors",
    "accelerate": "ostinato.hf",
    "graphed": "ostinato.graphs",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = version("ostinato")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
