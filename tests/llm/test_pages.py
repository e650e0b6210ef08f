"""PagePool: every page is free, or held by as many as say so."""

import pytest

from ostinato.errors import InternalError, UsageError
from ostinato.llm.kv.pages import PagePool


def test_all_pages_but_that_of_padding_can_be_granted_once() -> None:
    pool = PagePool(5)
    assert pool.capacity == 4
    granted = pool.grant(4)
    assert granted is not None
    assert sorted(granted) == [1, 2, 3, 4]
    assert pool.free == 0
    assert pool.grant(1) is None


def test_a_grant_that_does_not_fit_changes_nothing() -> None:
    pool = PagePool(5)
    assert pool.grant(5) is None
    assert pool.free == 4
    assert pool.grant(0) == []


def test_a_shared_page_is_free_when_its_last_holder_lets_go() -> None:
    pool = PagePool(2)
    assert pool.grant(1) == [1]
    pool.share(1)
    assert pool.release(1) == 1
    assert pool.free == 0
    assert pool.release(1) == 0
    assert pool.free == 1


def test_pages_released_together_are_free_but_for_those_that_somebody_shares() -> None:
    pool = PagePool(5)
    granted = pool.grant(3)
    assert granted == [1, 2, 3]
    pool.share(2)
    pool.release_all([3, 2, 1])
    pool.check_integrity({2: 1})
    assert pool.free == 3
    assert pool.grant(3) == [1, 3, 4]  # the last one freed comes first, as one by one


@pytest.mark.parametrize("page", [0, 1, -1, 9])
def test_a_page_that_nobody_holds_can_be_neither_shared_nor_released(page: int) -> None:
    pool = PagePool(3)
    for use in (pool.share, pool.release, lambda page: pool.release_all([page])):
        with pytest.raises(InternalError, match=f"page {page} ") as caught:
            use(page)
        assert caught.value.code == "OST5190"
    pool.check_integrity()


def test_a_pool_without_a_page_to_grant_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 2 pages") as caught:
        PagePool(1)
    assert caught.value.code == "OST5007"


def test_integrity_notices_a_holder_that_the_pool_does_not_know_of_and_one_that_is_gone() -> None:
    pool = PagePool(4)
    granted = pool.grant(1)
    assert granted == [1]
    pool.check_integrity({1: 1})
    with pytest.raises(InternalError, match="page 1 counts 1 holders and has 2"):
        pool.check_integrity({1: 2})
    with pytest.raises(InternalError, match="page 1 counts 1 holders and has 0"):
        pool.check_integrity({})
    with pytest.raises(InternalError, match="page 2 counts 0 holders and has 1"):
        pool.check_integrity({1: 1, 2: 1})


def test_integrity_notices_a_page_that_is_free_and_held() -> None:
    pool = PagePool(4)
    pool.grant(1)
    pool._free.append(1)
    with pytest.raises(InternalError, match="page 1"):
        pool.check_integrity()


def test_integrity_notices_a_page_that_is_free_twice_or_lost() -> None:
    pool = PagePool(4)
    pool._free.append(3)
    with pytest.raises(InternalError, match="twice"):
        pool.check_integrity()
    pool._free = [1, 2]
    with pytest.raises(InternalError, match="page 3"):
        pool.check_integrity()


def test_no_page_has_a_number_below_zero_though_every_page_is_held() -> None:
    pool = PagePool(4)
    assert pool.grant(3) is not None
    with pytest.raises(InternalError, match="page -1 was shared"):
        pool.share(-1)
    with pytest.raises(InternalError, match="page -1 was released"):
        pool.release(-1)
    assert pool.free == 0
