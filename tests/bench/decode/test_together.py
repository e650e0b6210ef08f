"""Which steps of a batch count: those that all rows run, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ostinato.bench.decode.together import Came, has_begun, together

LAUNCH = 8


def row(begins: int, launches: int, *, at: float = 0.0, last: int = LAUNCH) -> list[Came]:
    """A row whose prompt's token comes at launch `begins`, and so many launches behind it.

    A launch takes a second with `at` of it over, and brings 8 tokens; the last one brings `last`.
    """
    came = [Came(begins + at, 1)]
    for number in range(1, launches + 1):
        came.append(
            Came(
                begins + number + at,
                came[-1].tokens + (last if number == launches else LAUNCH),
            )
        )
    return came


def test_steps_before_the_last_row_has_joined_and_behind_the_first_end_do_not_count() -> None:
    early, late = row(0, 20), row(10, 30)
    found = together([early, late], prompt=100)
    # From what the late row's first launch brought, at 11, to the one before the early row's end.
    assert (found.steps, found.seconds) == ((19 - 11) * LAUNCH, 8.0)
    assert found.ms == 125.0
    assert (found.per_step.median_us, found.per_step.iqr_us) == (125e3, 0.0)
    assert found.before == 1 + 11 * LAUNCH
    assert found.behind == (40 - 19) * LAUNCH


def test_a_step_reads_the_keys_of_each_row_as_it_is_then() -> None:
    early, late = row(0, 20), row(10, 30)
    found = together([early, late], prompt=100)
    first = [100 + 1 + 11 * LAUNCH, 100 + 1 + LAUNCH]  # of the first step that counts
    assert found.keys == sum(first) + 2 * (found.steps - 1) / 2


def test_rows_that_hear_of_a_launch_one_after_the_other_run_it_together() -> None:
    rows = [row(0, 20, at=each / 100) for each in range(5)]
    found = together(rows, prompt=10)
    assert found.steps == (19 - 1) * LAUNCH
    # One that hears of the later launches after the others.
    slow = [Came(each.at_s + (each.at_s > 9) / 2, each.tokens) for each in rows[0]]
    assert together([slow, *rows[1:]], prompt=10).steps == (19 - 1) * LAUNCH


def test_a_launch_in_whose_middle_a_row_ended_does_not_count() -> None:
    found = together([row(0, 10, last=3), row(0, 12)], prompt=10)
    assert found.steps == (9 - 1) * LAUNCH


def test_a_row_that_was_left_out_for_a_while_is_told() -> None:
    paused = [Came(each.at_s + (3 if each.at_s > 5 else 0), each.tokens) for each in row(0, 20)]
    with pytest.raises(ValueError, match="row 1 got 144 tokens while another got 168"):
        together([row(0, 24), paused, row(0, 24, at=0.01)], prompt=10)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row(0, 5), row(3, 0)], "not every row has run a step"),
        ([row(0, 5), []], "not every row has run a step"),
        ([row(0, 5), row(5, 9)], "no step was run by all rows"),
        ([row(0, 2)], "no step was run by all rows"),
    ],
)
def test_without_a_step_of_all_rows_there_is_no_number(
    rows: Sequence[Sequence[Came]], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        together(rows, prompt=10)


def test_a_batch_has_begun_when_each_row_was_in_a_launch() -> None:
    assert not has_begun([row(0, 3), row(2, 0)])
    assert has_begun([row(0, 3), row(2, 1)])
