"""Checkpoints on disk: folders, safetensors, GGUF, tokenizer, chat template.

    checkpoint = load("smollm2", device="cpu")
    checkpoint.model.generate(...)

Shared by `hf`, `llm` and the command line. Importing this package imports neither torch nor
transformers; loading does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.checkpoints.catalog import load
    from ostinato.checkpoints.chat import render_chat
    from ostinato.checkpoints.detokenize import Detokenizer
    from ostinato.checkpoints.folder import Checkpoint, load_folder
    from ostinato.checkpoints.gguf import GgufFile
    from ostinato.checkpoints.memory import telling_memory
    from ostinato.checkpoints.placement import choose_device
    from ostinato.checkpoints.progress import Progress
    from ostinato.checkpoints.smollm2 import smollm2_folder

_HOMES = {
    "Checkpoint": "folder",
    "Detokenizer": "detokenize",
    "GgufFile": "gguf",
    "Progress": "progress",
    "choose_device": "placement",
    "load": "catalog",
    "load_folder": "folder",
    "render_chat": "chat",
    "smollm2_folder": "smollm2",
    "telling_memory": "memory",
}

__all__ = [
    "Checkpoint",
    "Detokenizer",
    "GgufFile",
    "Progress",
    "choose_device",
    "load",
    "load_folder",
    "render_chat",
    "smollm2_folder",
    "telling_memory",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
