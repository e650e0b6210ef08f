"""Whether a text can fit into a model at all, told by its length, before it becomes tokens.

To cut megabytes into tokens takes seconds of a processor, and a text of more bytes than the model's
longest tokens could spell will be refused whatever its tokens are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenizers.pre_tokenizers import ByteLevel

from ostinato.llm.refusals import PromptTooLong, prompt_too_long

if TYPE_CHECKING:
    import tokenizers

_GENEROUS = 64
"""Bytes of a token where a tokenizer may leave out some of a text, such as repeated blanks."""


def longest_token(tokenizer: tokenizers.Tokenizer) -> int:
    """Return how many bytes of a text one token stands for at most."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    added = tokenizer.get_added_tokens_decoder().values()
    # Of a vocabulary of bytes, each letter is one.
    longest = max(map(len, vocabulary), default=1)
    longest = max([longest, *(len(token.content.encode()) for token in added)])
    return longest if _keeps_every_byte(tokenizer, vocabulary) else max(_GENEROUS, 4 * longest)


def _keeps_every_byte(tokenizer: tokenizers.Tokenizer, vocabulary: Mapping[str, int]) -> bool:
    """Whether each byte of a text is in one of its tokens: BPE of bytes, and nothing before it."""
    said = json.loads(tokenizer.to_str())
    before = json.dumps(said["pre_tokenizer"])
    return (
        said["model"]["type"] == "BPE"
        and said["normalizer"] is None
        and '"ByteLevel"' in before
        and '"Removed"' not in before
        and not any(added["lstrip"] or added["rstrip"] for added in said["added_tokens"])
        and vocabulary.keys() >= set(ByteLevel.alphabet())
    )


def check_fits(texts: Iterable[str], room_tokens: int, longest_bytes: int) -> None:
    """Refuse what has more bytes than the longest tokens can spell.

    Args:
        texts: All of which come into one prompt.
        room_tokens: Tokens that the model holds, prompt and answer together.
        longest_bytes: Of one token.

    Raises:
        PromptTooLong: OST5002.
    """
    most = room_tokens * longest_bytes
    texts = list(texts)
    if sum(map(len, texts)) * 4 <= most:  # no character has more bytes
        return
    size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    if size > most:
        raise PromptTooLong(
            f"the prompt has at least {-(-size // longest_bytes)} tokens and at most "
            f"{room_tokens - 1} fit, for {held_back_by(room_tokens)}",
            code="OST5002",
            remedy=f"shorten the prompt to {room_tokens - 1} tokens or fewer",
        )


def check_count(prompt_tokens: int, room_tokens: int) -> None:
    """Refuse a prompt of more tokens than the model holds; the engine looks closer.

    Raises:
        PromptTooLong: OST5002.
    """
    if prompt_tokens > room_tokens:
        raise prompt_too_long(prompt_tokens, room_tokens - 1, held_back_by(room_tokens))


def held_back_by(room_tokens: int) -> str:
    """Return what sets the limit, as the engine says it."""
    return f"the model holds {room_tokens} tokens, the answer's included"


def said_in(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a conversation's template surely writes of it: contents, without outer blanks.

    What an assistant has said is left out: templates cut its thoughts from it.
    """
    return [
        message["content"].strip()
        for message in messages
        if message.get("role") != "assistant" and isinstance(message.get("content"), str)
    ]
