"""From a schema to a grammar: off the step loop, bounded in time and memory, remembered.

One compiler serves one tokenizer. What goes wrong concerns the request that asked, and nobody else.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ostinato.errors import ResourceError
from ostinato.llm.structured.grammar import Grammar
from ostinato.llm.structured.problems import (
    closed,
    not_compiled,
    not_installed,
    refusing,
    tokenizer_unusable,
)
from ostinato.llm.structured.schema import Schema, SchemaKind
from ostinato.llm.structured.trial import Trial
from ostinato.llm.structured.unkept import check_kept

if TYPE_CHECKING:
    import tokenizers
    from llguidance import LLMatcher, LLTokenizer

_WORKERS = 2
_MOST_KEPT = 128


@dataclass(frozen=True, slots=True)
class Compiled:
    """A grammar that stands before the first token.

    Attributes:
        stop_ids: The tokens that end an answer, which the grammar allows where it is complete.
    """

    stop_ids: tuple[int, ...]
    _matcher: LLMatcher
    _vocabulary: int

    def start(self) -> Grammar:
        """Return a grammar for one answer."""
        with refusing(not_compiled):
            return Grammar(self._matcher.deep_copy(), self._vocabulary)


class Compiler:
    """Compiles for one tokenizer. All calls may come from any thread.

    Args:
        tokenizer: The model's; None if it has none, and then every schema is refused.
        vocabulary: Tokens of the model, which may be more or fewer than the tokenizer's.
        stop_ids: By which the model ends an answer; the tokenizer's own if there are none.
        timeout_s: What one schema may take to compile.
        room_bytes: Memory that it may take.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer | None,
        *,
        vocabulary: int,
        stop_ids: Sequence[int] = (),
        timeout_s: float = 5.0,
        room_bytes: int = 1 << 30,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._stop_ids = tuple(stop_ids)
        self._timeout_s = timeout_s
        self._room_bytes = room_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Schema, Future[Compiled]] = OrderedDict()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="ostinato-schema")
        self._trials: SimpleQueue[Trial] = SimpleQueue()
        self._tables = threading.Lock()
        self._table: LLTokenizer | None = None

    def compile(self, schema: Schema) -> Future[Compiled]:
        """Return at once with what will be the grammar.

        A schema that is known, or being compiled, is not compiled again.

        Raises, by way of the future:
            UsageError: OST5061, llguidance is not installed; OST5062, no grammar can be made;
                OST5064, it allows nothing; OST5065, the tokenizer cannot be used.
            ResourceError: OST5063, it takes too long or too much memory.
        """
        with self._lock:
            shared = self._known.get(schema)
            if shared is None:
                shared = self._begin(schema)
                self._known[schema] = shared
            self._known.move_to_end(schema)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        own: Future[Compiled] = Future()  # of its own: whoever cancels it cancels nobody else's
        shared.add_done_callback(lambda done: _hand_on(done, own))
        return own

    def _begin(self, schema: Schema) -> Future[Compiled]:
        try:
            return self._workers.submit(self._compile, schema)
        except RuntimeError:  # `close` has been called meanwhile
            ended: Future[Compiled] = Future()
            ended.set_exception(closed())
            return ended

    def close(self) -> None:
        """End the processes. What is being compiled is waited for; what waits is given up."""
        self._workers.shutdown(cancel_futures=True)
        while (trial := self._idle_trial()) is not None:
            trial.close()

    def _compile(self, schema: Schema) -> Compiled:
        try:
            return self._tried(schema)
        except ResourceError:
            with self._lock:  # the machine may be less busy the next time
                self._known.pop(schema, None)
            raise

    def _tried(self, schema: Schema) -> Compiled:
        try:
            from ostinato.llm.structured.making import grammar_of, match
        except ImportError as error:
            raise not_installed(error) from error
        with refusing(not_compiled):
            if schema.kind is SchemaKind.JSON:
                check_kept(json.loads(schema.text))
            grammar = grammar_of(schema)
        table = self._read_table()
        trial = self._idle_trial() or self._new_trial(table.vocab_size)
        try:
            trial.run(grammar)
        finally:
            self._trials.put(trial)
        with refusing(not_compiled):
            matcher = match(table, grammar)
        if matcher.is_error():
            raise not_compiled(matcher.get_error())
        Grammar(matcher, self._vocabulary).allowed_words()
        return Compiled(tuple(table.eos_tokens), matcher, self._vocabulary)

    def _read_table(self) -> LLTokenizer:
        """Return the table of what each token spells, which is read once."""
        from ostinato.llm.structured.making import token_table

        with self._tables:
            if self._table is None:
                tokenizer = self._usable_tokenizer()
                ids = max(self._vocabulary, 1 + max(tokenizer.get_vocab().values()))
                self._stop_ids = tuple(token for token in self._stop_ids if 0 <= token < ids)
                try:
                    self._table = token_table(tokenizer.to_str(), ids, self._stop_ids)
                except ValueError as error:
                    raise tokenizer_unusable(str(error)) from error
            return self._table

    def _usable_tokenizer(self) -> tokenizers.Tokenizer:
        if self._tokenizer is None:
            raise tokenizer_unusable("the model has none")
        return self._tokenizer

    def _idle_trial(self) -> Trial | None:
        try:
            return self._trials.get_nowait()
        except Empty:
            return None

    def _new_trial(self, vocabulary: int) -> Trial:
        return Trial(
            self._usable_tokenizer().to_str(),
            vocabulary=vocabulary,
            stop_ids=self._stop_ids,
            timeout_s=self._timeout_s,
            room_bytes=self._room_bytes,
        )


def _hand_on(done: Future[Compiled], own: Future[Compiled]) -> None:
    if not own.set_running_or_notify_cancel():
        return
    if done.cancelled():
        own.set_exception(closed())
    elif (error := done.exception()) is not None:
        own.set_exception(error)
    else:
        own.set_result(done.result())
