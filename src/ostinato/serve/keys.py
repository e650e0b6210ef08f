"""Keys as a file or a variable of the environment holds them. Pure."""

from __future__ import annotations

from ostinato.errors import UsageError


def read_keys(text: str, place: str) -> tuple[str, ...]:
    """Return the keys, one a line; blank lines and those that begin with # are none.

    Args:
        place: Where the text is from, for the message.

    Raises:
        UsageError: OST6067, there is no key: whoever names a place for keys wants callers to have
            one, and a secret that was mounted empty must not open the service to everybody. Or a
            line is no key.
    """
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise _wrong(f"{place} holds no key")
    for number, line in enumerate(lines, start=1):
        if line in keys and not _is_key(line):
            raise _wrong(f"line {number} of {place} is no key: it has a blank or other than ASCII")
    return keys


def _is_key(line: str) -> bool:
    return line.isascii() and line.isprintable() and " " not in line


def _wrong(problem: str) -> UsageError:
    return UsageError(
        problem,
        code="OST6067",
        remedy="write one key a line, of printable ASCII without blanks; for a service that asks "
        "for none, leave the option out and unset the variable",
    )
