"""Whether a text, or an answer, can fit into a model at all, told by its length.

To cut megabytes into tokens takes seconds of a processor, and a text of more bytes than the model's
longest tokens could spell will be refused whatever its tokens are. Of an answer that must keep to
a schema the shortest is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenizers.pre_tokenizers import ByteLevel

from ostinato.errors import UsageError
from ostinato.llm.refusals import PromptTooLong, prompt_too_long

if TYPE_CHECKING:
    import tokenizers

    from ostinato.serve.least_answer import Least

_COMMAS = re.compile(",+")
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


def check_fits(text: str, room_tokens: int, longest_bytes: int) -> None:
    """Refuse a text of more bytes than the longest tokens can spell.

    Args:
        room_tokens: Tokens that the model holds, prompt and answer together.
        longest_bytes: Of one token.

    Raises:
        PromptTooLong: OST5002.
    """
    most = room_tokens * longest_bytes
    if len(text) * 4 <= most:  # no character has more bytes
        return
    size = len(text.encode(errors="surrogatepass"))
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


@dataclass(frozen=True, slots=True)
class Tongue:
    """How much of an answer one token says at most.

    Attributes:
        bytes: Of its text.
        commas: Of JSON's, between two of which there is a value: ",,," holds one.
    """

    bytes: int
    commas: int

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer) -> Tongue:
        """Read a vocabulary: some 100 ms for 128,000 tokens."""
        runs = (len(_COMMAS.findall(token)) for token in tokenizer.get_vocab())
        return cls(longest_token(tokenizer), max(1, *runs))

    def check_answer(self, least: Least, max_tokens: int, what: str = "the schema") -> None:
        """Refuse an answer that would end before it is whole.

        Args:
            what: Asks for it.

        Raises:
            UsageError: OST6032.
        """
        tokens = max(-(-least.bytes // self.bytes), -(-least.commas // self.commas))
        if tokens > max_tokens:
            raise UsageError(
                f"the shortest answer that keeps to {what} has at least {tokens} tokens, and "
                f"the answer may have {max_tokens}",
                code="OST6032",
                remedy=f"allow {tokens} tokens or more, or let {what} ask for less",
            )
