"""A long prefill as several that are recorded. Pure.

Queued kernel by kernel, a prefill of 8192 tokens is hundreds of calls, and in each of them another
thread may take the interpreter's lock. So while hundreds of requests come in, the device waits for
the host. A few replays are a few calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ostinato.llm.attention.batch import PromptChunk


class Part(NamedTuple):
    """What is prefilled at once.

    Attributes:
        chunks: In their order; the last one may be the beginning of a chunk that goes on in the
            next part.
        ends: How many chunks end here: all, or all but that one.
    """

    chunks: list[PromptChunk]
    ends: int


def parts_of(chunks: Sequence[PromptChunk], tokens: int, most: int) -> Iterator[Part]:
    """Yield `chunks` as parts of so many tokens, and of at most so many chunks.

    Parts are to be prefilled in their order: a chunk that is cut needs what came before it.
    """
    part, left, ends = list[PromptChunk](), tokens, 0
    for chunk in chunks:
        rest: PromptChunk | None = chunk
        while rest is not None:
            first, rest = _split(rest, left)
            part.append(first)
            left -= len(first.token_ids)
            ends += rest is None
            if not left or len(part) == most:
                yield Part(part, ends)
                part, left, ends = [], tokens, 0
    if part:
        yield Part(part, ends)


def _split(chunk: PromptChunk, tokens: int) -> tuple[PromptChunk, PromptChunk | None]:
    ids, start, pages = chunk
    if len(ids) <= tokens:
        return chunk, None
    return PromptChunk(ids[:tokens], start, pages), PromptChunk(ids[tokens:], start + tokens, pages)
