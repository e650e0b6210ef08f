"""What one row of a launch means for its request: where a stop text ends it, what a grammar says.

A stop text is seen here, one launch after its tokens: those behind it are dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ostinato.errors import OstinatoError
from ostinato.llm.faults import not_numbers, step_failed
from ostinato.llm.reply import Event
from ostinato.llm.request import FinishReason

if TYPE_CHECKING:
    from ostinato.llm.reply import Reply
    from ostinato.llm.resident_launch import Produced

_log = logging.getLogger(__name__)


def read_row(reply: Reply, row: int, produced: Produced) -> Event:
    """Return what `row` brings to `reply`, whose watch and grammar move on with it."""
    finish = produced.finishes.get(row)
    event = Event(reply, produced.tokens[row], produced.logprobs.get(row), finish)
    if finish is FinishReason.ERROR:
        event.error = not_numbers()
    elif reply.watch is not None or reply.grammar is not None:
        try:
            _heed(event)
        except Exception as error:  # noqa: BLE001 - it concerns this request alone
            _log.exception("reading request %s failed", reply.request_id)
            known = error if isinstance(error, OstinatoError) else step_failed(error)
            return Event(reply, finish=FinishReason.ERROR, error=known)
    return event


def _heed(event: Event) -> None:
    """End the answer where its watch or its grammar does."""
    reply, tokens, finish = event.reply, event.token_ids, event.finish
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
    if event.logprobs is not None:
        event.logprobs = event.logprobs[: len(tokens)]
    event.token_ids, event.finish = tokens, finish
