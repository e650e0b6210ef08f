"""PrefixIndex: equal beginnings share pages, and nothing else does."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import InternalError
from ostinato.llm.kv.pages import PagePool
from ostinato.llm.kv.prefix import PageKeys, PrefixIndex

SIZE = 4


def keys(tokens: list[int], salt: str = "") -> list[bytes]:
    return list(PageKeys(salt, SIZE).first(len(tokens) // SIZE, tokens))


def filled(index: PrefixIndex, pool: PagePool, tokens: list[int], salt: str = "") -> list[int]:
    """Grant pages for `tokens`, make them known, and return them, still held."""
    known = keys(tokens, salt)
    pages = pool.grant(len(known))
    assert pages is not None
    for key, page in zip(known, pages, strict=True):
        index.insert(key, page)
    return pages


@pytest.fixture
def pool() -> PagePool:
    return PagePool(33)


@pytest.fixture
def index(pool: PagePool) -> PrefixIndex:
    return PrefixIndex(pool)


@given(
    st.lists(st.integers(0, 2), max_size=14),
    st.lists(st.integers(0, 2), max_size=14),
)
@settings(max_examples=200, deadline=None)
def test_two_sequences_have_as_many_keys_in_common_as_they_begin_with_equal_full_pages(
    one: list[int], other: list[int]
) -> None:
    both = min(len(one), len(other)) // SIZE
    equal = 0
    while equal < both and one[: (equal + 1) * SIZE] == other[: (equal + 1) * SIZE]:
        equal += 1
    assert len(set(keys(one)) & set(keys(other))) == equal


def test_keys_of_a_sequence_that_grew_are_those_of_the_whole() -> None:
    tokens = list(range(12))
    growing = PageKeys("s", SIZE)
    assert list(growing.first(1, tokens[:5])) == keys(tokens, "s")[:1]
    assert list(growing.first(3, tokens)) == keys(tokens, "s")
    assert list(growing.first(2, tokens)) == keys(tokens, "s")[:2]


def test_a_known_beginning_is_found_and_held(index: PrefixIndex, pool: PagePool) -> None:
    pages = filled(index, pool, list(range(12)))
    assert index.match(keys([*range(8), 99, 99, 99, 99])) == pages[:2]
    assert [pool.holders(page) for page in pages] == [3, 3, 2]


def test_other_salts_find_nothing(index: PrefixIndex, pool: PagePool) -> None:
    filled(index, pool, list(range(12)), salt="mine")
    assert index.match(keys(list(range(12)), salt="yours")) == []
    assert index.match(keys(list(range(12)))) == []


def test_the_same_page_after_another_beginning_is_not_found(
    index: PrefixIndex, pool: PagePool
) -> None:
    filled(index, pool, [1] * 4 + [2] * 4)
    assert index.match(keys([3] * 4 + [2] * 4)) == []
    assert index.match(keys([2] * 4)) == []


def test_content_that_is_known_keeps_its_first_page(index: PrefixIndex, pool: PagePool) -> None:
    first = filled(index, pool, [1] * 4)
    second = filled(index, pool, [1] * 4)
    assert index.match(keys([1] * 4)) == first
    index.release(second)
    assert pool.holders(second[0]) == 0
    index.check_integrity()


def test_a_page_that_somebody_holds_is_not_evicted(index: PrefixIndex, pool: PagePool) -> None:
    filled(index, pool, list(range(12)))
    assert index.idle == 0
    assert index.evict(10) == 0
    assert len(index) == 3


def test_the_page_idle_longest_goes_first_and_of_one_sequence_the_last(
    index: PrefixIndex, pool: PagePool
) -> None:
    old, new = [1] * 8, [2] * 8
    old_pages = filled(index, pool, old)
    new_pages = filled(index, pool, new)
    index.release(old_pages)
    index.release(new_pages)
    assert index.evict(1) == 1
    assert index.find(keys(old)).pages == tuple(old_pages[:1])
    assert index.find(keys(new)).pages == tuple(new_pages)
    index.release(index.match(keys(old)))  # used again: now the other is idle longest
    assert index.evict(2) == 2
    assert index.find(keys(old)).pages == tuple(old_pages[:1])
    assert index.find(keys(new)).pages == ()


def test_find_says_how_many_pages_only_the_index_holds(index: PrefixIndex, pool: PagePool) -> None:
    pages = filled(index, pool, list(range(12)))
    index.release(pages)
    index.match(keys(list(range(4))))
    found = index.find(keys(list(range(12))))
    assert (found.pages, found.idle) == (tuple(pages), 2)


def test_a_disowned_page_is_found_no_more_and_stays_with_its_holder(
    index: PrefixIndex, pool: PagePool
) -> None:
    tokens = list(range(12))
    held, idle = filled(index, pool, tokens), filled(index, pool, [7] * 8)
    index.release(idle)
    index.disown([held[1], *idle, 31])
    assert index.find(keys(tokens)).pages == (held[0],)
    assert index.find(keys([7] * 8)).pages == ()
    assert [pool.holders(page) for page in (*held, *idle)] == [2, 1, 2, 0, 0]
    index.check_integrity()
    index.release(held)
    assert pool.free == 30
    pool.check_integrity(index.holders())


def test_after_clear_nothing_is_found_and_pages_in_use_stay_with_their_holders(
    index: PrefixIndex, pool: PagePool
) -> None:
    held = filled(index, pool, [1] * 8)
    index.release(filled(index, pool, [2] * 8))
    index.clear()
    assert len(index) == index.idle == 0
    assert index.match(keys([1] * 8)) == []
    pool.check_integrity(dict.fromkeys(held, 1))
    index.release(held)
    pool.check_integrity({})


def test_integrity_notices_a_page_that_is_wrongly_idle(index: PrefixIndex, pool: PagePool) -> None:
    pages = filled(index, pool, [1] * 4)
    index._idle[pages[0]] = None
    with pytest.raises(InternalError, match=f"page {pages[0]} has 2 holders"):
        index.check_integrity()


def test_integrity_notices_a_page_given_away_under_the_index(
    index: PrefixIndex, pool: PagePool
) -> None:
    pages = filled(index, pool, [1] * 4)
    pool.release(pages[0])
    pool.release(pages[0])
    with pytest.raises(InternalError, match="nobody holds it"):
        index.check_integrity()


class Owners:
    """Random callers over a small pool, with a second set of books of what is in which page."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.pool = PagePool(41)
        self.index = PrefixIndex(self.pool)
        self.held: list[tuple[list[int], list[int], str]] = []
        self.content: dict[int, tuple[str, tuple[int, ...]]] = {}

    def begin(self) -> None:
        """One caller: share what is known, get the rest granted, write it, make it known."""
        salt = self.random.choice(["", "", "a"])
        tokens = [self.random.randint(0, 1) for _ in range(SIZE * self.random.randint(0, 6))]
        known = keys(tokens, salt)
        found = self.index.find(known)
        needed = len(known) - len(found.pages)
        if self.pool.free + self.index.idle - found.idle < needed:
            return
        pages = self.index.take(found)
        for at, page in enumerate(pages):
            assert self.content[page] == (salt, tuple(tokens[: (at + 1) * SIZE]))
        self.index.evict(max(0, needed - self.pool.free))
        granted = self.pool.grant(needed)
        assert granted is not None
        others = {page for mine, _, _ in self.held for page in mine}
        assert not others & set(granted)
        pages += granted
        for at in range(len(found.pages), len(pages)):
            self.content[pages[at]] = (salt, tuple(tokens[: (at + 1) * SIZE]))
            if self.random.random() < 0.8:
                self.index.insert(known[at], pages[at])
        self.held.append((pages, tokens, salt))

    def end(self) -> None:
        if not self.held:
            return
        at = self.random.randrange(len(self.held))
        pages, tokens, salt = self.held.pop(at)
        for place, page in enumerate(pages):
            assert self.content[page] == (salt, tuple(tokens[: (place + 1) * SIZE]))
        self.index.release(pages)

    def check(self) -> None:
        holders = self.index.holders()
        for pages, _, _ in self.held:
            for page in pages:
                holders[page] = holders.get(page, 0) + 1
        self.pool.check_integrity(holders)
        self.index.check_integrity()


def test_no_page_leaks_or_is_shared_wrongly_over_100_000_random_operations() -> None:
    owners = Owners(Random(0))
    evictions = shared = 0
    for operation in range(100_000):
        choice = owners.random.random()
        if choice < 0.5:
            owners.begin()
        elif choice < 0.95:
            owners.end()
        elif choice < 0.9995:
            evictions += owners.index.evict(owners.random.randint(0, 3))
        else:
            owners.index.clear()
        if operation % 1000 == 0:
            owners.check()
            counts = [owners.pool.holders(page) for page in range(1, 41)]
            shared += sum(count > 2 for count in counts)
    assert evictions > 1000
    assert shared > 50
    while owners.held:
        owners.end()
    owners.index.clear()
    owners.pool.check_integrity({})
    assert owners.pool.free == owners.pool.capacity
