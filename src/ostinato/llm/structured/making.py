"""How llguidance is called, the same in the engine and in the process that tries a grammar first.

This is the one door to llguidance. It bounds the size of a grammar and the work of one token; what
it does not bound, such as `multipleOf` a large number, the trial does by time and memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from ostinato.llm.structured.schema import Schema, SchemaKind

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LLMatcher", "LLTokenizer", "grammar_of", "match", "token_table"]

_MOST_SYMBOLS = 50_000  # a grammar of 100,000 took 0.6 s for its first token (2 CPU cores, 2026)
# One space, or a new line and what it is indented by. A model that likes blanks would else fill its
# answer with them: a small one wrote dozens of tokens of them between any two words.
_BLANKS = r" |\n( {0,8}|\t{0,4})"


def grammar_of(schema: Schema) -> str:
    """Return a schema in llguidance's own form; whether it makes sense is not looked at."""
    if schema.kind is SchemaKind.REGEX:
        return LLMatcher.grammar_from_regex(schema.text)
    if schema.kind is SchemaKind.LARK:
        return LLMatcher.grammar_from_lark(schema.text)
    if schema.kind is SchemaKind.CHOICES:
        choices = [json.dumps(text, ensure_ascii=False) for text in json.loads(schema.text)]
        return LLMatcher.grammar_from_lark("start: " + " | ".join(choices))
    return LLMatcher.grammar_from_json_schema(
        schema.text, overrides={"lenient": False, "whitespace_pattern": _BLANKS}
    )


def token_table(tokenizer: str, vocabulary: int, stop_ids: Sequence[int]) -> LLTokenizer:
    """Return the table of what each token spells.

    Args:
        tokenizer: The content of a `tokenizer.json`.
        vocabulary: Ids from 0 up, at least all that the tokenizer has.

    Raises:
        ValueError: It cannot be read.
    """
    return LLTokenizer(tokenizer, n_vocab=vocabulary, eos_token=list(stop_ids) or None)


def match(table: LLTokenizer, grammar: str) -> LLMatcher:
    """Return a matcher that stands before the first token; it may be in error.

    Its first mask is computed, which is the longest to wait for.
    """
    limits = LLParserLimits(max_grammar_size=_MOST_SYMBOLS, verbose_errors=False)
    matcher = LLMatcher(table, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher
