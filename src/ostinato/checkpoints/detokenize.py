"""Turns a stream of token ids into a stream of text that never has to be taken back.

One token is not one piece of text: a character may be spread over several, and a space may belong
to the next word. So ids are decoded together with the ids before them, and text is handed out only
when no later token can change it. The pieces joined are exactly the text of all ids decoded at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REPLACEMENT = "�"  # how a decoder shows a character that is not complete (yet)
_CONTEXT_IDS = 4  # enough for the longest UTF-8 character spelled byte by byte


class Detokenizer:
    """One stream of token ids on its way to text."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Start a stream.

        Args:
            decode: Text of ids. It must not tidy up spaces: that changes text already given out.
        """
        self._decode = decode
        self._window: list[int] = []  # the last ids, enough to decode the next one rightly
        self._given = 0  # characters of the window's text already handed out

    def push(self, ids: Sequence[int]) -> str:
        """Take the next ids and return the text that is now certain, often empty."""
        self._window.extend(ids)
        text = self._decode(self._window)
        certain = text.rstrip(_REPLACEMENT)
        fresh = certain[self._given :]
        self._given = max(self._given, len(certain))
        if len(certain) == len(text):
            self._forget(text)
        return fresh

    def finish(self) -> str:
        """Return what was held back; an incomplete character stays a replacement mark."""
        text = self._decode(self._window)[self._given :]
        self._window, self._given = [], 0
        return text

    def _forget(self, text: str) -> None:
        """Drop all but the last ids, so that a long answer does not cost its length squared."""
        context = self._window[-_CONTEXT_IDS:]
        kept = self._decode(context)
        # A decoder that reads these ids otherwise without the earlier ones keeps them all for now.
        if kept and text.endswith(kept):
            self._window, self._given = context, len(kept)
