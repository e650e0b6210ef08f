"""`# ostinato: ignore[OST101]`: what a comment keeps quiet, and which comments are not needed.

A comment speaks for the line that it is on, and for a statement that ends there; one alone on its
line speaks for the next line of code.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

from ostinato.doctor.catalog import RULES

MARK = "ostinato:"
_COMMENT = re.compile(r"#\s*ostinato:\s*ignore(?:\[(?P<codes>[^\]]*)\])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment.

    Attributes:
        line: Where it stands.
        covers: The line that it speaks for.
        words: Codes and names; empty means all.
    """

    line: int
    covers: int
    words: tuple[str, ...]

    def silences(self, code: str) -> bool:
        """Return whether the comment names the code, or its name, or nothing."""
        plain = {word.lower().replace("_", "-").removeprefix("ost") for word in self.words}
        return not plain or code[3:] in plain or RULES[code].name in plain


def ignores_in(text: str) -> tuple[Ignore, ...]:
    """Return the comments of a file that ask for silence."""
    if MARK not in text:
        return ()
    found: list[Ignore] = []
    waiting: list[tuple[int, tuple[str, ...]]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                match = _COMMENT.search(token.string)
                if match is None:
                    continue
                words = tuple(filter(None, re.split(r"[,\s]+", match["codes"] or "")))
                if token.line[: token.start[1]].strip():
                    found.append(Ignore(token.start[0], token.start[0], words))
                else:
                    waiting.append((token.start[0], words))
            elif waiting and token.type not in _BLANK:
                found += [Ignore(line, token.start[0], words) for line, words in waiting]
                waiting.clear()
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return tuple(found)
    return tuple(found)


_BLANK = (
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.COMMENT,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
)
