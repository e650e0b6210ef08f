"""Texts to tokens and back, in threads: a long prompt must not hold up everybody's next token.

The tokenizers library lets go of Python's lock while it works, so the threads do run beside the
event loop. Short texts are done at once: handing one to a thread takes longer than its tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ostinato.errors import UsageError
from ostinato.llm.refusals import shown
from ostinato.serve.fitting import check_fits, longest_token

if TYPE_CHECKING:
    import tokenizers

    from ostinato.llm.tokenizer import Tokenizer

_SHORT = 256
"""Letters or tokens that are done in the event loop, in some 50 us."""
_WORKERS = 2
_SET = frozenset({"self", "template", "messages", "tools", "add_generation_prompt"})
"""Names in a chat template that are not a request's to set."""
_Answer = TypeVar("_Answer")


def _unwritten(error: UsageError) -> UsageError:
    """Return why a conversation cannot be written, without the words of what runs the template.

    What a template itself says, such as that roles must alternate, is the model's word.
    """
    if error.code != "OST2030" or type(error.__cause__).__name__ == "TemplateError":
        return error
    fact = str(error.args[0]).partition(": ")[0]
    return UsageError(fact, code=error.code, remedy=error.remedy)


@dataclass(frozen=True, slots=True)
class _Within:
    """Stands where a `Tokenizer` has the library's own, and cuts no text that is far too long.

    What it is given is what the chat template wrote: every role and part counts, and nothing that
    the template leaves out.
    """

    inner: tokenizers.Tokenizer
    room_tokens: int
    longest_of: Callable[[tokenizers.Tokenizer], int]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tokenizers.Encoding:
        # A text of no more bytes than there are tokens fits, whatever these are.
        if 4 * len(text) > self.room_tokens:
            check_fits(text, self.room_tokens, self.longest_of(self.inner))
        return self.inner.encode(text, add_special_tokens=add_special_tokens)


class Tokens:
    """One model's tokenizer, for an event loop.

    Args:
        current: Gives the tokenizer, or None while there is none.
    """

    def __init__(self, current: Callable[[], Tokenizer | None]) -> None:
        self._current = current
        self._longest: tuple[tokenizers.Tokenizer, int] | None = None
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

    async def encode(self, text: str, room_tokens: int | None = None) -> list[int]:
        """Return the ids of a plain text.

        Args:
            room_tokens: That the model has; a text that is far too long is not even tried.

        Raises:
            UsageError: OST5040, OST5042, OST5002: no tokenizer, a text with half a character, or
                one that cannot fit.
        """
        if len(text) <= _SHORT:
            return self.tokenizer.encode(text)
        return await self._in_thread(self._within(room_tokens).encode, text)

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        room_tokens: int | None = None,
    ) -> list[int]:
        """Return the ids of a conversation, up to where the assistant begins to speak.

        Args:
            room_tokens: As for `encode`.

        Raises:
            UsageError: OST5040, OST5041, OST5042, OST2030: what cannot be written; OST5002: what
                cannot fit.
        """
        encode = self._within(room_tokens).encode_conversation
        try:
            return await self._in_thread(encode, messages, tools, variables or {})
        except UsageError as error:
            raise _unwritten(error) from error

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
    def set_names(self) -> frozenset[str]:
        """What the chat template knows by names that no request may set."""
        return _SET | {"special_tokens", *self.tokenizer.special_tokens}

    def reads(self, name: str) -> bool:
        """Whether the model's chat template knows something, such as "tools"."""
        template = self.tokenizer.chat_template
        return template is not None and name in template

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _within(self, room_tokens: int | None) -> Tokenizer:
        """Return the tokenizer; one that knows how much room there is, if that is known."""
        tokenizer = self.tokenizer
        if not room_tokens:
            return tokenizer
        inner: Any = _Within(tokenizer.inner, room_tokens, self._longest_of)
        return replace(tokenizer, inner=inner)

    def _longest_of(self, inner: tokenizers.Tokenizer) -> int:
        known = self._longest
        if known is None or known[0] is not inner:
            known = self._longest = (inner, longest_token(inner))
        return known[1]

    async def _in_thread(self, work: Callable[..., _Answer], *values: Any) -> _Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, work, *values)
