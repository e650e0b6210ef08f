"""Tokens to text as they come, up to the first stop text.

Text is given out only when no later token can take it back: a character may be spread over several
tokens, and what has just come may be the beginning of a stop text. The pieces joined do not depend
on how the tokens were cut into pieces, so a stream's reader and the engine, which has to know when
a stop text ends a request, each run their own and agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ostinato.checkpoints import Detokenizer


class AnswerText:
    """The text of one answer.

    Args:
        decode: Text of ids.
        stops: Texts that end the answer and are cut from it.
        min_tokens: Stop texts do not count in what the first so many tokens say.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = (), min_tokens: int = 0
    ) -> None:
        self._decode = decode
        self._detokenizer = Detokenizer(decode)
        self._stops = tuple(stops)
        self._min_tokens = self._unwatched = min_tokens
        self._held = ""  # watched, certain, and perhaps the beginning of a stop text
        self.is_stopped = False

    def anew(self) -> AnswerText:
        """Return one for the same answer that has taken nothing yet."""
        return AnswerText(self._decode, self._stops, self._min_tokens)

    def push(self, ids: Sequence[int]) -> tuple[str, int]:
        """Take the next ids; return the text that is now certain, and how many ids it took.

        Fewer than all were taken if a stop text was complete: the rest is not part of the answer.
        """
        if self.is_stopped:
            return "", 0
        if not self._stops:
            return self._detokenizer.push(ids), len(ids)
        said = []
        for taken, token in enumerate(ids, 1):
            said.append(self._watch(self._detokenizer.push([token])))
            if self.is_stopped:
                return "".join(said), taken
        return "".join(said), len(ids)

    def finish(self) -> str:
        """Return what was held back; nothing more comes."""
        if self.is_stopped:
            return ""
        rest = self._detokenizer.finish()
        if not self._stops:
            return rest
        said = self._watch(rest)
        held, self._held = self._held, ""
        return said + held

    def _watch(self, fresh: str) -> str:
        """Return what of the text so far is certain, and hold back the rest."""
        if self._unwatched > 0:
            self._unwatched -= 1
            return fresh
        text = self._held + fresh
        cuts = [at for at in map(text.find, self._stops) if at >= 0]
        if cuts:
            self.is_stopped = True
            self._held = ""
            return text[: min(cuts)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last letters of `text` could be the first of `stop`."""
    for count in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:count]):
            return count
    return 0
