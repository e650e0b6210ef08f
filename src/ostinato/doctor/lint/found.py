"""A finding of the lint, with its words, and how it is known again when lines move."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from ostinato.doctor.catalog import RULES, Rule

_LONGEST = 120


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding.

    Attributes:
        code, name: Such as "OST101" and "host-sync-in-step".
        line, column: Of the expression that waits, or is otherwise at fault; both from 1.
        end_line, end_column: One past its last character.
        function: The function round it, such as "Model.forward"; empty in the body of a file.
        expression: Its source, on one line.
        fact: What was seen.
        fingerprint: The same after lines moved, and different for a second one like it.
    """

    code: str
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str
    expression: str
    fact: str
    fingerprint: str

    @property
    def rule(self) -> Rule:
        """The rule in the catalogue: why it costs, and what to try."""
        return RULES[self.code]


@dataclass(frozen=True, slots=True)
class UnusedIgnore:
    """A comment that asks for silence where there is nothing to say."""

    path: str
    line: int
    codes: tuple[str, ...]


def expression_at(lines: list[str], spot: tuple[int, int, int, int]) -> str:
    """Return the source of a place on one line; columns count bytes, as `ast` gives them."""
    first, start, last, end = spot
    parts = lines[first - 1 : last]
    if not parts:
        return ""
    if first == last:
        text = parts[0].encode()[start:end].decode(errors="replace")
    else:
        head = parts[0].encode()[start:].decode(errors="replace")
        tail = parts[-1].encode()[:end].decode(errors="replace")
        text = " ".join([head, *parts[1:-1], tail])
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def characters(lines: list[str], line: int, column: int) -> int:
    """Return a column in characters, from 1, for one in bytes from 0."""
    if not 0 < line <= len(lines):
        return column + 1
    return len(lines[line - 1].encode()[:column].decode(errors="replace")) + 1


def fingerprint(code: str, path: str, function: str, expression: str, occurrence: int) -> str:
    """Return what names a finding wherever its line goes."""
    key = "\0".join((code, path.replace("\\", "/"), function, expression, str(occurrence)))
    return sha256(key.encode()).hexdigest()[:20]
