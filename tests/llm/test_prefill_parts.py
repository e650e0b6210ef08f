"""Long prefills in parts: nothing is left out, and a part is never more than a recording holds."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from ostinato.llm.attention import PromptChunk
from ostinato.llm.prefill_parts import Part, parts_of


def chunks_of(*sizes: tuple[int, int]) -> list[PromptChunk]:
    """Chunks of (start, tokens); each has a page of its own number, and tokens that tell places."""
    return [
        PromptChunk(list(range(start, start + count)), start, [number])
        for number, (start, count) in enumerate(sizes)
    ]


def told(part: Part) -> list[tuple[int, int, int]]:
    """(chunk, from, to) of each piece."""
    return [(pages[0], start, start + len(ids)) for ids, start, pages in part.chunks]


def test_what_fits_is_one_part() -> None:
    chunks = chunks_of((0, 5), (3, 3))
    assert list(parts_of(chunks, 8, 2)) == [Part(chunks, 2)]


def test_a_chunk_is_cut_where_a_part_is_full_and_goes_on_in_the_next() -> None:
    first, second, third = parts_of(chunks_of((0, 5), (7, 9), (0, 4)), 8, 9)
    assert told(first) == [(0, 0, 5), (1, 7, 10)]
    assert told(second) == [(1, 10, 16), (2, 0, 2)]
    assert told(third) == [(2, 2, 4)]
    assert [part.ends for part in (first, second, third)] == [1, 1, 1]


def test_a_part_holds_no_more_chunks_than_it_may() -> None:
    parts = list(parts_of(chunks_of(*[(0, 1)] * 5), 100, 2))
    assert [len(part.chunks) for part in parts] == [2, 2, 1]
    assert [part.ends for part in parts] == [2, 2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), min_size=1, max_size=20),
    st.integers(1, 30),
    st.integers(1, 6),
)
def test_all_parts_together_are_the_chunks_in_their_order(
    sizes: list[tuple[int, int]], tokens: int, most: int
) -> None:
    chunks = chunks_of(*sizes)
    parts = list(parts_of(chunks, tokens, most))
    for part in parts:
        assert 1 <= sum(len(chunk.token_ids) for chunk in part.chunks) <= tokens
        assert 1 <= len(part.chunks) <= most
    assert sum(part.ends for part in parts) == len(chunks)
    pieces = [piece for part in parts for piece in told(part)]
    for number, (start, count) in enumerate(sizes):
        mine = [piece for piece in pieces if piece[0] == number]
        assert [at for _, at, _ in mine] == [start, *(end for _, _, end in mine[:-1])]
        assert mine[-1][2] == start + count
    assert [number for number, _ in groupby(piece[0] for piece in pieces)] == list(
        range(len(sizes))
    )
    # Whoever ends in a part is found at its beginning.
    ended = [piece for part in parts for piece in told(part)[: part.ends]]
    assert [(number, end) for number, _, end in ended] == [
        (number, start + count) for number, (start, count) in enumerate(sizes)
    ]
