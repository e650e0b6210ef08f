"""The queue of one model: batches on a thread of its own, the loop free, each failure alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ostinato.errors import OstinatoError
from ostinato.serve.callable.batcher import Batcher
from ostinato.serve.callable.batching import Limits
from ostinato.serve.callable.faults import Fault, failed, fault_of

PATIENT = Limits(max_batch=4, max_delay_s=30.0, max_waiting=3)
PROMPT = Limits(max_batch=4, max_delay_s=0.0, max_waiting=3)


class Doubling:
    """Answers numbers with their doubles, and waits to be let go if asked to."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[str] = set()
        self.go = threading.Event()
        if not is_held:
            self.go.set()

    def __call__(self, batch: Sequence[int]) -> Sequence[int | OstinatoError]:
        assert self.go.wait(10)
        self.batches.append(list(batch))
        self.threads.add(threading.current_thread().name)
        return [failed(ValueError("no 7s")) if one == 7 else 2 * one for one in batch]


async def fault(awaitable: object) -> Fault:
    with pytest.raises(OstinatoError) as caught:
        await awaitable  # type: ignore[misc]
    return fault_of(caught.value)


def test_requests_at_once_run_as_one_batch_off_the_loop() -> None:
    async def run() -> None:
        double = Doubling()
        batcher = Batcher(double, PATIENT)
        asked = [batcher.infer(n, kind="k", rows=1 + (n == 2)) for n in (1, 2, 3)]
        assert await asyncio.gather(*asked) == [2, 4, 6]  # 4 rows: full, no delay
        assert double.batches == [[1, 2, 3]]
        assert all(name.startswith("ostinato-callable") for name in double.threads)
        assert (batcher.counts.batches, batcher.counts.rows, batcher.counts.answered) == (1, 4, 3)
        await batcher.close()

    asyncio.run(run())


def test_the_loop_goes_on_while_the_model_runs_and_the_next_batch_gathers() -> None:
    async def run() -> None:
        double = Doubling(is_held=True)
        batcher = Batcher(double, Limits(max_batch=4, max_delay_s=0.0, max_waiting=9))
        first = asyncio.create_task(batcher.infer(1, kind="k", rows=1))
        while not batcher.counts.running:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.infer(n, kind="k", rows=1)) for n in (2, 3)]
        await asyncio.sleep(0.01)
        assert batcher.counts.waiting == 2
        assert batcher.running_s > 0
        double.go.set()
        assert await asyncio.gather(first, *others) == [2, 4, 6]
        assert double.batches == [[1], [2, 3]]
        assert batcher.running_s == 0
        await batcher.close()

    asyncio.run(run())


def test_one_bad_request_fails_alone() -> None:
    async def run() -> None:
        batcher = Batcher(Doubling(), PATIENT)
        good = asyncio.create_task(batcher.infer(1, kind="k", rows=1))
        bad = asyncio.create_task(batcher.infer(7, kind="k", rows=3))
        assert await good == 2
        assert await fault(bad) is Fault.FAILED
        assert (batcher.counts.answered, batcher.counts.failed) == (1, 1)
        await batcher.close()

    asyncio.run(run())


def test_a_run_that_raises_fails_its_batch_and_the_next_one_runs() -> None:
    async def run() -> None:
        double = Doubling()

        def once(batch: Sequence[int]) -> Sequence[int | OstinatoError]:
            if batch == [0]:
                raise RuntimeError("broken")
            return double(batch)

        batcher = Batcher(once, PROMPT)
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.infer(0, kind="k", rows=1)
        assert await batcher.infer(4, kind="k", rows=1) == 8
        await batcher.close()

    asyncio.run(run())


def test_a_full_queue_refuses_and_counts_it() -> None:
    async def run() -> None:
        batcher = Batcher(Doubling(), PATIENT)
        waiting = [asyncio.create_task(batcher.infer(n, kind=n, rows=1)) for n in range(3)]
        await asyncio.sleep(0)
        assert await fault(batcher.infer(9, kind=9, rows=1)) is Fault.FULL
        assert batcher.counts.refused == 1
        await batcher.close()
        assert [await fault(one) for one in waiting] == [Fault.CLOSING] * 3

    asyncio.run(run())


def test_a_request_larger_than_a_batch_is_the_callers_fault() -> None:
    async def run() -> None:
        batcher = Batcher(Doubling(), PATIENT)
        assert await fault(batcher.infer(1, kind="k", rows=5)) is Fault.REFUSED
        await batcher.close()

    asyncio.run(run())


def test_a_request_past_its_deadline_is_told_and_does_not_run() -> None:
    async def run() -> None:
        double = Doubling()
        batcher = Batcher(double, PATIENT)
        assert await fault(batcher.infer(1, kind="k", rows=1, timeout_s=0.01)) is Fault.LATE
        assert (double.batches, batcher.counts.late) == ([], 1)
        await batcher.close()

    asyncio.run(run())


def test_a_caller_that_is_cancelled_leaves_the_queue() -> None:
    async def run() -> None:
        double = Doubling()
        batcher = Batcher(double, PATIENT)
        gone = asyncio.create_task(batcher.infer(1, kind="k", rows=1))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0.01)
        assert batcher.counts.waiting == 0
        assert await batcher.infer(2, kind="k", rows=4) == 4
        assert double.batches == [[2]]
        await batcher.close()

    asyncio.run(run())


def test_draining_answers_what_is_there_and_takes_no_more() -> None:
    async def run() -> None:
        batcher = Batcher(Doubling(), PATIENT)  # and yet nobody waits for company now
        waiting = asyncio.create_task(batcher.infer(1, kind="k", rows=1))
        await asyncio.sleep(0)
        drained = asyncio.create_task(batcher.drain(5.0))
        await asyncio.sleep(0)
        assert await fault(batcher.infer(2, kind="k", rows=1)) is Fault.CLOSING
        assert await drained
        assert await waiting == 2
        await batcher.close()

    asyncio.run(run())


def test_draining_gives_up_after_its_bound() -> None:
    async def run() -> None:
        double = Doubling(is_held=True)
        batcher = Batcher(double, PROMPT)
        running = asyncio.create_task(batcher.infer(1, kind="k", rows=1))
        while not batcher.counts.running:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(batcher.infer(2, kind="k", rows=1))
        await asyncio.sleep(0)
        assert not await batcher.drain(0.01)
        double.go.set()
        await batcher.close()
        assert await fault(waiting) is Fault.CLOSING
        assert await fault(running) is Fault.CLOSING

    asyncio.run(run())


def test_draining_what_was_never_used_ends_at_once() -> None:
    async def run() -> None:
        batcher = Batcher(Doubling(), PATIENT)
        assert await batcher.drain(1.0)
        await batcher.close()

    asyncio.run(run())


def test_who_is_to_run_alone_does_and_everybody_is_told_before_the_run() -> None:
    async def run() -> None:
        double = Doubling(is_held=True)
        batcher = Batcher(double, Limits(max_batch=4, max_delay_s=0.0))
        told: list[tuple[str, list[int]]] = []

        def here(keys: list[int]) -> None:
            told.append(("here", keys))

        def there(keys: list[int]) -> None:
            told.append(("there", keys))

        asked = [
            asyncio.create_task(
                batcher.infer(n, kind="k", rows=1, alone=n == 3, key=10 * n, begun=begun)
            )
            for n, begun in ((1, here), (2, there), (3, here), (4, here))
        ]
        while not batcher.counts.running:
            await asyncio.sleep(0)
        assert told == [("here", [10, 40]), ("there", [20])]
        assert double.batches == []
        double.go.set()
        assert await asyncio.gather(*asked) == [2, 4, 6, 8]
        assert double.batches == [[1, 2, 4], [3]]
        await batcher.close()

    asyncio.run(run())


def test_a_batch_is_stuck_only_when_it_keeps_others_from_their_answers() -> None:
    async def run() -> None:
        double, now = Doubling(is_held=True), [0.0]
        batcher = Batcher(double, Limits(max_batch=2, max_delay_s=0.0), lambda: now[0])
        assert batcher.stuck_s == 0

        def ask(n: int) -> asyncio.Task[int]:
            return asyncio.create_task(batcher.infer(n, kind="k", rows=1))

        async def begun() -> None:
            while not batcher.counts.running:
                await asyncio.sleep(0)
            now[0] += 5

        lone = ask(1)
        await begun()
        assert (batcher.running_s, batcher.stuck_s) == (5, 0)
        behind = ask(2)
        await asyncio.sleep(0)
        assert batcher.stuck_s == 5
        behind.cancel()
        await asyncio.gather(behind, return_exceptions=True)
        assert batcher.stuck_s == 0
        lone.cancel()  # nobody waits, but whoever comes would
        await asyncio.gather(lone, return_exceptions=True)
        assert batcher.stuck_s == 5
        double.go.set()
        while batcher.counts.running:
            await asyncio.sleep(0)
        assert batcher.stuck_s == 0
        double.go.clear()
        two = [ask(3), ask(4)]
        await begun()
        assert batcher.stuck_s == 5
        double.go.set()
        assert await asyncio.gather(*two) == [6, 8]
        await batcher.close()

    asyncio.run(run())
