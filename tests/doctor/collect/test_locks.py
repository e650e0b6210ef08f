"""A lock of the program stays what it was while it is watched, as far as Python lets it."""

from __future__ import annotations

import _thread
import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ostinato.doctor.watching import Choices, Watch


@pytest.fixture
def lock() -> Iterator[Any]:
    with Watch(choices=Choices(sample=False)):
        made = threading.Lock()
        assert type(made) is not _thread.LockType  # it is watched
        yield made


def test_a_watched_lock_is_an_instance_of_the_type_of_locks(lock: Any) -> None:
    assert isinstance(lock, _thread.LockType)
    assert lock.__class__ is _thread.LockType
    with lock:
        assert lock.locked()
    assert threading.Condition(lock).acquire(blocking=False)


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_watched_lock_refuses_to_be_copied_with_the_words_of_a_real_one(
    lock: Any, take: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError) as real:
        take(_thread.allocate_lock())
    with pytest.raises(TypeError) as watched:
        take(lock)
    assert str(watched.value) == str(real.value)


def test_each_wait_for_a_lock_is_timed_by_itself(lock: Any) -> None:
    with lock:
        for _ in range(3):
            assert not lock.acquire(timeout=0.001)
    assert (lock.blocked, len(lock.each_blocked_us)) == (3, 3)
    assert sum(lock.each_blocked_us) == pytest.approx(lock.blocked_ns / 1e3)
