"""Bytes and microseconds: reading what people write, and writing what people read.

Budgets are written as "2GiB" or "1.5 GB" and held as bytes; times are held as microseconds. The
options of `graphed`, the reports and the command line come here.
"""

from __future__ import annotations

import re

from ostinato.errors import UsageError

_BINARY = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES = {"": 1, "B": 1} | _BINARY | _DECIMAL
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_bytes(amount: int | str) -> int:
    """Return `amount` in bytes: an int as it is, or text such as "2GiB", "512 MiB" or "1.5 GB".

    KiB, MiB, GiB and TiB are powers of 1024; KB, MB, GB and TB are powers of 1000.

    Raises:
        UsageError: OST1001, the text is not an amount of bytes, or the number is negative.
    """
    if isinstance(amount, bool) or not isinstance(amount, int | str):
        raise _not_bytes(amount)
    if isinstance(amount, int):
        if amount < 0:
            raise _not_bytes(amount)
        return amount
    match = _AMOUNT.fullmatch(amount)
    if match is None or match[2].upper() not in _BYTES:
        raise _not_bytes(amount)
    return round(float(match[1]) * _BYTES[match[2].upper()])


def _not_bytes(amount: object) -> UsageError:
    return UsageError(
        f"not an amount of bytes: {amount!r}",
        code="OST1001",
        remedy='write a number and a unit, such as "2GiB" or "1.5 GB", or give bytes as an int',
    )


def format_bytes(count: int) -> str:
    """Return `count` bytes as people read them: "0 B", "512 B", "1.5 MiB", "2.0 GiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        # 1023.95 would print as "1024.0": the next unit says it better.
        if abs(size) < 1023.95:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_us(duration_us: float) -> str:
    """Return a duration as people read it, with three figures: "4.12 us", "1.90 ms", "2.31 s"."""
    for limit, scale, unit in ((999.5, 1.0, "us"), (999.5e3, 1e3, "ms")):
        if abs(duration_us) < limit:
            return f"{_three_figures(duration_us / scale)} {unit}"
    return f"{_three_figures(duration_us / 1e6)} s"


def _three_figures(number: float) -> str:
    size = abs(number)
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{number:.{decimals}f}"
