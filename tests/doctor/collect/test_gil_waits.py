"""What a thread lost counts as lost to the GIL only where it sleeps as CPython does for it."""

from __future__ import annotations

from typing import Any, cast

from ostinato.doctor.collect.sampler import _Thread, _wants_the_gil
from ostinato.doctor.collect.thread_times import Sleep


class Told:
    """Answers as the kernel would."""

    def __init__(self, *sleeps: Sleep) -> None:
        self._sleeps = list(sleeps)

    def sleep(self) -> Sleep:
        return self._sleeps.pop(0)


def judged(*sleeps: Sleep) -> list[bool]:
    thread = _Thread(name="one", times=cast(Any, Told(*sleeps)))
    return [_wants_the_gil(thread) for _ in sleeps]


def test_only_a_sleep_for_the_gil_is_a_wait_for_it() -> None:
    assert judged(Sleep.FOR_THE_GIL, Sleep.ON_A_THREAD, Sleep.IN_A_CALL) == [True, False, False]


def test_one_that_is_awake_slept_in_what_it_mostly_sleeps_in() -> None:
    on, gil, awake = Sleep.ON_A_THREAD, Sleep.FOR_THE_GIL, Sleep.AWAKE
    assert judged(on, awake, gil, gil, awake) == [False, False, True, True, True]


def test_one_that_was_never_seen_asleep_is_not_taken_to_have_waited_for_the_gil() -> None:
    assert judged(Sleep.AWAKE, Sleep.AWAKE) == [False, False]


def test_one_that_slept_in_both_as_often_is_not_either() -> None:
    on, gil, awake = Sleep.ON_A_THREAD, Sleep.FOR_THE_GIL, Sleep.AWAKE
    assert judged(on, gil, awake) == [False, True, False]


def test_a_kernel_that_tells_nothing_leaves_what_the_clocks_say() -> None:
    assert judged(Sleep.UNKNOWN, Sleep.UNKNOWN) == [True, True]
