"""Requests that want a schema kept: their grammars are made beside the step, not in it.

Until its grammar is there a request lives, may be cancelled and counts as waiting to be let in;
what goes wrong with its schema ends it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ostinato.errors import OstinatoError
from ostinato.llm.faults import step_failed
from ostinato.llm.structured import Compiler

if TYPE_CHECKING:
    from ostinato.llm.reply import Reply
    from ostinato.llm.structured import Compiled, Schema
    from ostinato.llm.tokenizer import Tokenizer

_log = logging.getLogger(__name__)
Equipped = Callable[[Sequence["Reply"], OstinatoError | None], None]


class Grammars:
    """Gives replies their grammars.

    Args:
        equipped: Told, in any thread, when replies have theirs, or why they cannot have one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        *,
        vocabulary: int,
        stop_ids: Sequence[int],
        equipped: Equipped,
    ) -> None:
        self._compiler = Compiler(
            None if tokenizer is None else tokenizer.inner,
            vocabulary=vocabulary,
            stop_ids=stop_ids,
        )
        self._equipped = equipped

    def compile(self, schema: Schema) -> Future[Compiled]:
        """Begin to make a grammar, which is kept; see `Compiler.compile`."""
        return self._compiler.compile(schema)

    def equip(self, replies: Sequence[Reply], schema: Schema) -> None:
        """Begin to make the grammars of `replies`; returns at once."""
        equipped = self._equipped
        self._compiler.compile(schema).add_done_callback(
            lambda done: equipped(replies, _equip(replies, done))
        )

    def close(self) -> None:
        """End the processes in which schemas are tried."""
        self._compiler.close()


def _equip(replies: Sequence[Reply], done: Future[Compiled]) -> OstinatoError | None:
    try:
        compiled = done.result()
        for reply in replies:
            grammar = compiled.start()
            reply.allowed = grammar.allowed_words()
            reply.grammar = grammar
            # The grammar alone says where the answer may end.
            reply.stop_ids = compiled.stop_ids
    except OstinatoError as error:
        return error
    except Exception as error:  # noqa: BLE001 - it concerns these replies alone
        _log.error("a grammar could not be begun", exc_info=error)
        return step_failed(error)
    return None
