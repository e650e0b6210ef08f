"""The line named for a container is the one that changes it, under whatever name."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import pytest

from ostinato.graphs.changing_lines import line_changing

SEEN: list[int] = []
OTHER: list[int] = []


def by_itself(x: int) -> int:
    x += 1
    SEEN.append(x)
    return len(SEEN)


def under_another_name(x: int) -> int:
    x += len(OTHER)
    held = SEEN
    held += [x]
    return x


def by_a_function(x: int) -> int:
    known = len(SEEN)
    bisect.insort(SEEN, x)
    return known


def by_its_entry(x: int) -> int:
    x += len(SEEN)
    SEEN[0] = x
    return x


def in_a_function_of_its_own(x: int) -> int:
    def inner() -> None:
        SEEN.extend([x])

    inner()
    return x


def in_a_text(x: int) -> int:
    x += 1
    exec("SEEN.append(1)")
    return x


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (by_itself, "SEEN.append(x)"),
        (under_another_name, "held += [x]"),
        (by_its_entry, "SEEN[0] = x"),
        (in_a_function_of_its_own, "SEEN.extend([x])"),
        (in_a_text, 'exec("SEEN.append(1)")'),
    ],
)
@pytest.mark.parametrize("path", ["SEEN", "model.SEEN", "SEEN (a global)", "SEEN[3]"])
def test_the_line_that_changes_it_is_named(function: Any, line: str, path: str) -> None:
    found = line_changing([function], path)
    assert found is not None
    assert found.endswith(f"`{line}`")


def test_a_function_that_is_given_it_is_named_where_nothing_is_likelier() -> None:
    found = line_changing([by_a_function], "SEEN")
    assert found is not None
    assert "SEEN" in found


def test_no_line_is_named_where_none_is_likely() -> None:
    def reads(x: int) -> int:
        return x + 1

    functions: list[Callable[..., Any]] = [reads]
    assert line_changing(functions, "SEEN") is None  # type: ignore[arg-type]
