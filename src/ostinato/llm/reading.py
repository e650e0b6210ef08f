"""What one row of a launch means for its request: where a stop text ends it, what a grammar says.

A stop text is seen here, one launch after its tokens: those behind it are dropped.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostinato.errors import OstinatoError
from ostinato.llm.faults import not_numbers, step_failed
from ostinato.llm.request import FinishReason

if TYPE_CHECKING:
    from ostinato.llm.reply import Reply
    from ostinato.llm.resident_launch import Produced, TokenLogprobs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gave:
    """What a launch gave one request; see `Event`."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish: FinishReason | None = None
    error: OstinatoError | None = None


def read_row(reply: Reply, produced: Produced) -> Gave:
    """Return what `produced` brings to `reply`, whose watch and grammar move on with it."""
    if produced.finish is FinishReason.ERROR:
        return Gave(produced.tokens, produced.logprobs, FinishReason.ERROR, not_numbers())
    try:
        return _read(reply, produced)
    except Exception as error:  # noqa: BLE001 - it concerns this request alone
        _log.exception("reading request %s failed", reply.request_id)
        known = error if isinstance(error, OstinatoError) else step_failed(error)
        return Gave(finish=FinishReason.ERROR, error=known)


def _read(reply: Reply, produced: Produced) -> Gave:
    tokens, finish = produced.tokens, produced.finish
    # A stop token is no part of the text, and a grammar does not know it.
    said = tokens[:-1] if finish is FinishReason.STOP else tokens
    if reply.watch is not None:
        _, taken = reply.watch.push(said)
        if reply.watch.is_stopped:
            tokens, finish = tokens[:taken], FinishReason.STOP
    if reply.grammar is not None and said:
        reply.grammar.accept(said)
        # Whole with the last token it was allowed is whole.
        if finish in (None, FinishReason.LENGTH) and reply.grammar.is_finished:
            finish = FinishReason.STOP
        if finish is None:
            reply.allowed = reply.grammar.allowed_words()
    logprobs = produced.logprobs
    return Gave(tokens, None if logprobs is None else logprobs[: len(tokens)], finish)
