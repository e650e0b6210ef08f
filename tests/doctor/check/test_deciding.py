"""A number that is read and decides: followed through the source of its function, no further."""

from __future__ import annotations

from textwrap import dedent

import pytest

from ostinato.doctor.check.deciding import branch_decided_by

READ = "x.max().item()"


def decided(body: str) -> int | None:
    """Return the line of the body whose branch the read decides; the first line is 1."""
    source = "def step(x, other):\n" + "\n".join(
        "    " + line for line in dedent(body).strip("\n").splitlines()
    )
    before = source[: source.index(READ)]
    column = len(before.rpartition("\n")[2]) + 1
    found = branch_decided_by(source, before.count("\n") + 1, column)
    return None if found is None else found - 1


@pytest.mark.parametrize(
    "line",
    [
        f"if {READ} > 0.5: return x",
        f"if not (0.1 < {READ} <= 0.5): return x",
        f"while int({READ}) % 2: x = x + 1",
        f"return x if {READ} == 3 else -x",
        f"assert {READ} < 9",
        f"return {READ} > 3 and other(x)",
        f"return [y for y in other if {READ} > 3]",
        f"for _ in range(int({READ}) + 1): x = x + 1",
        f"return [x for _ in range({READ})]",
        f"match {READ}:\n    case 1: return x",
        f"if (n := {READ}) > 3: return x * n",
        f"if max({READ}, 0.0) > 3: return x",
    ],
)
def test_a_read_within_a_condition_decides_it(line: str) -> None:
    assert decided(line) == 1


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (f"n = {READ}\nif n > 3:\n    return x", 2),
        (f"n: int = int({READ})\nm = n + 1\nk = m * 2\nwhile k > 3:\n    k = k - 1", 4),
        (f"n = 0\nn += {READ}\nn += 1\nif n:\n    return x", 4),
        (f"n = {READ}\nn = int(n)\nif n in (1, 2):\n    return x", 3),
        (f"names = [{READ}]\nn = {READ}\nif n[0] > 3:\n    return x", None),
        (f"if (n := {READ}) is not None:\n    pass\nif n > 3:\n    return x", 3),
    ],
)
def test_a_read_is_followed_through_local_names(body: str, line: int | None) -> None:
    assert decided(body) == line


@pytest.mark.parametrize(
    "body",
    [
        f"return x * {READ}",
        f"print({READ})",
        f"n = {READ}\nn = 5\nif n > 3:\n    return x",
        f"n = {READ}\nif n is None:\n    return x",
        f"y = other({READ})\nif y > 3:\n    return x",
        f"y = other[{READ}]\nif y.shape[0] > 3:\n    return x",
        f"self.n = {READ}\nif self.n > 3:\n    return x",
        f"n = {READ}\ndef inner(n):\n    return x if n > 3 else -x\nreturn inner(0)",
        f"if other > 3:\n    return {READ}",
        f"a, b = {READ}, 1\nif b > 3:\n    return x",
        f"n = {READ}\nif len(n) > 3:\n    return x",
    ],
)
def test_what_is_not_plainly_decided_gets_no_answer(body: str) -> None:
    assert decided(body) is None


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [("if f(x) > 3: pass", 1, 0), ("if f(x) > 3: pass", 2, 4), ("if f(x) >", 1, 4), ("", 1, 1)],
)
def test_a_place_that_cannot_be_read_gets_no_answer(source: str, line: int, column: int) -> None:
    assert branch_decided_by(source, line, column) is None


def test_a_read_inside_of_a_library_says_nothing_of_what_the_library_returns() -> None:
    assert branch_decided_by("if model(x) > 3: pass", 1, 4) is None
    assert branch_decided_by("if model(x).sum() > 3: pass", 1, 4) is None


def test_of_the_calls_that_begin_at_one_place_the_longest_is_the_read() -> None:
    assert branch_decided_by("if x.max().item() > 3: pass", 1, 4) == 1
