"""Attention over paged keys and values: the protocol, its backends, and which one runs."""

from ostinato.llm.attention.base import (
    Attend,
    AttentionBackend,
    AttentionShape,
    DecodeAttend,
    PrefillAttend,
)
from ostinato.llm.attention.batch import PrefillBatch, PromptChunk, pack
from ostinato.llm.attention.choose import Choice, choose
from ostinato.llm.attention.sdpa import SdpaAttention

__all__ = [
    "Attend",
    "AttentionBackend",
    "AttentionShape",
    "Choice",
    "DecodeAttend",
    "PrefillAttend",
    "PrefillBatch",
    "PromptChunk",
    "SdpaAttention",
    "choose",
    "pack",
]
