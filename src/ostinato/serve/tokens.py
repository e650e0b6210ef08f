"""Texts to tokens and back, in threads: a long prompt must not hold up everybody's next token.

The tokenizers library lets go of Python's lock while it works, so the threads do run beside the
event loop. Short texts are done at once: handing one to a thread takes longer than its tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from ostinato.errors import UsageError
from ostinato.llm.refusals import shown

if TYPE_CHECKING:
    from ostinato.llm.tokenizer import Tokenizer

_SHORT = 256
"""Letters or tokens that are done in the event loop, in some 50 us."""
_WORKERS = 2
_Answer = TypeVar("_Answer")


class Tokens:
    """One model's tokenizer, for an event loop.

    Args:
        current: Gives the tokenizer, or None while there is none.
    """

    def __init__(self, current: Callable[[], Tokenizer | None]) -> None:
        self._current = current
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="ostinato-tokens")

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            UsageError: OST5040, the model has none.
        """
        tokenizer = self._current()
        if tokenizer is None:
            raise UsageError(
                "a text was given, and the model has no tokenizer",
                code="OST5040",
                remedy="pass token ids, or add the model's tokenizer.json to its folder",
            )
        return tokenizer

    async def encode(self, text: str) -> list[int]:
        """Return the ids of a plain text.

        Raises:
            UsageError: OST5040, OST5042: no tokenizer, or a text with half a character.
        """
        encode = self.tokenizer.encode
        if len(text) <= _SHORT:
            return encode(text)
        return await self._in_thread(encode, text)

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Return the ids of a conversation, up to where the assistant begins to speak.

        Raises:
            UsageError: OST5040, OST5041, OST5042, OST2030: what cannot be written.
        """
        return await self._in_thread(self.tokenizer.encode_conversation, messages, tools, variables)

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids.

        Raises:
            UsageError: OST5040, no tokenizer; OST6004, an id that is none.
        """
        tokenizer = self.tokenizer
        if ids and not 0 <= min(ids) <= max(ids) < 1 << 32:
            strange = next(token for token in ids if not 0 <= token < 1 << 32)
            raise UsageError(
                f"{shown(strange)} is no token id",
                code="OST6004",
                remedy="pass whole numbers from 0 up",
            )
        if len(ids) <= _SHORT:
            return tokenizer.decode(ids)
        return await self._in_thread(tokenizer.decode, ids)

    def piece(self, token: int) -> str:
        """Return what one token says, special tokens too."""
        text: str = self.tokenizer.inner.decode([token], skip_special_tokens=False)
        return text

    @property
    def speaks_tools(self) -> bool:
        """Whether the model's chat template knows tools."""
        template = self.tokenizer.chat_template
        return template is not None and "tools" in template

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[..., _Answer], *values: Any) -> _Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, work, *values)
