"""A callable in a process of its own: answers, deadlines, and what its death means to whom."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.serve.callable import Array, CallableService, Fault, Limits, fault_of, keeper, served
from ostinato.serve.callable.arrays import TensorSpec, from_numbers, numbers
from ostinato.serve.callable.client import CallableClient
from ostinato.serve.callable.faults import Failure, not_started
from ostinato.serve.callable.service import Description
from ostinato.serve.callable.setup import Setup

Story = Callable[[CallableClient], Awaitable[None]]


@pytest.fixture(autouse=True)
def _modules_are_found(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository / "tests"))


@asynccontextmanager
async def client_of(name: str, limits: Limits | None = None) -> AsyncIterator[CallableClient]:
    async with served(f"serve.callable.small_models:{name}", limits=limits) as client:
        yield client


def row(*values: float) -> dict[str, Array]:
    return {"x": from_numbers("x", "FP32", (1, len(values)), list(values))}


async def answer(service: CallableService, *values: float) -> list[object]:
    return numbers((await service.infer(row(*values)))["output"])


async def died(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.01)


def test_it_answers_batches_refuses_and_drains() -> None:
    async def run() -> None:
        limits = Limits(max_batch=4, max_delay_s=60.0)
        async with client_of("scaled", limits) as client:
            assert client.description.max_batch == 4
            assert client.description.outputs["output"].shape == (-1, 4)
            found = await asyncio.gather(*(answer(client, n, 0, 0, 1) for n in range(4)))
            assert found == [[n, 0, 0, 4] for n in range(4)]
            told = await client.numbers()
            assert (told.batches, told.rows, told.answered) == (1, 4, 4)
            assert told.pid != os.getpid()
            with pytest.raises(OstinatoError) as refused:
                await client.infer(row(1, 2))
            assert refused.value.code == "OST6050"
            many = from_numbers("x", "FP32", (5, 4), [0] * 20)
            with pytest.raises(OstinatoError) as refused:
                await client.infer({"x": many})
            assert refused.value.code == "OST6057"
            gone = asyncio.create_task(client.infer(row(1, 1, 1, 1)))
            await asyncio.sleep(0.02)
            gone.cancel()
            with pytest.raises(ResourceError) as late:
                await client.infer(row(1, 1, 1, 1), timeout_s=0.01)
            assert fault_of(late.value) is Fault.LATE
            while (await client.numbers()).waiting:  # both left the queue there too
                await asyncio.sleep(0.02)
            assert (await client.numbers()).batches == 1  # and neither was run
            waiting = asyncio.create_task(answer(client, 1, 1, 1, 1))
            await asyncio.sleep(0.02)
            assert await client.drain(60.0)
            assert await waiting == [1, 2, 3, 4]
            assert not client.is_ready
            with pytest.raises(ResourceError) as closing:
                await client.infer(row(1, 1, 1, 1))
            assert fault_of(closing.value) is Fault.CLOSING
            pid = told.pid
        await asyncio.wait_for(died(pid), 60)

    asyncio.run(run())


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_what_waited_is_answered_once() -> None:
    async def run() -> None:
        limits = Limits(max_batch=2, max_delay_s=60.0, max_waiting=2)
        async with client_of("scaled", limits) as client:
            first = (await client.numbers()).pid
            waiting = asyncio.create_task(answer(client, 1, 1, 1, 1))
            await asyncio.sleep(0.05)
            os.kill(first, signal.SIGKILL)
            await died(first)
            while client.is_ready:
                await asyncio.sleep(0.01)
            other = asyncio.create_task(answer(client, 2, 0, 0, 0))  # while there is no process
            await asyncio.sleep(0)
            with pytest.raises(ResourceError) as full:
                await client.infer(row(3, 0, 0, 0))
            assert fault_of(full.value) is Fault.FULL
            assert await asyncio.wait_for(waiting, 200) == [1, 2, 3, 4]
            assert await other == [2, 0, 0, 0]
            told = await client.numbers()
            assert told.pid != first
            assert told.answered == 2

    asyncio.run(run())


@pytest.mark.slow
def test_a_request_that_ends_two_processes_is_refused_and_nothing_hangs() -> None:
    async def run() -> None:
        async with client_of("fatal", Limits(max_batch=2, max_delay_s=0.0)) as client:
            with pytest.raises(ResourceError, match="ended twice while it ran this") as caught:
                await asyncio.wait_for(client.infer(row(99, 0)), 200)
            assert fault_of(caught.value) is Fault.BROKEN
            assert not client.is_broken
            assert await asyncio.wait_for(answer(client, 1, 2), 200) == [2, 3]

    asyncio.run(run())


@pytest.mark.slow
def test_who_ran_with_a_request_that_ends_processes_is_answered_and_so_is_who_comes_later() -> None:
    async def run() -> None:
        async with client_of("fatal", Limits(max_batch=3, max_delay_s=0.5)) as client:
            for killer in (99, 98):  # four ends, and it is started again each time
                told = await asyncio.wait_for(
                    asyncio.gather(
                        answer(client, 1, 2), answer(client, killer, 0), answer(client, 3, 4),
                        return_exceptions=True,
                    ),
                    200,
                )  # fmt: skip
                assert (told[0], told[2]) == ([2, 3], [4, 5])
                assert isinstance(told[1], ResourceError)
                assert "the second time alone" in str(told[1])
            assert not client.is_broken

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("sleepy", 1), ("sleepy", 2), ("gripping", 1)])
def test_a_request_that_hangs_costs_neither_its_company_nor_who_waits_behind_it(
    name: str, most: int
) -> None:
    async def run() -> None:
        path, limits = f"serve.callable.small_models:{name}", Limits(most, max_delay_s=0.5)
        hang_s = 1.0 if name == "sleepy" else 5.0  # on a busy machine nothing is heard for seconds
        async with served(path, limits=limits, hang_s=hang_s) as client:
            hanging = asyncio.create_task(client.infer(row(3000, 0)))
            await asyncio.sleep(0)
            assert await asyncio.wait_for(answer(client, 0, 1), 200) == [1, 2]
            if most == 1:
                assert await asyncio.wait_for(answer(client, 0, 2), 200) == [1, 3]
                with pytest.raises(ResourceError, match="ended twice while it ran this request"):
                    await hanging
            hanging.cancel()

    asyncio.run(run())


@pytest.mark.slow
def test_a_process_that_is_stopped_is_replaced_though_requests_come_one_at_a_time() -> None:
    async def run() -> None:
        path, limits = "serve.callable.small_models:scaled", Limits(max_delay_s=0.0)
        async with served(path, limits=limits, hang_s=5.0) as client:
            stopped = (await client.numbers()).pid
            os.kill(stopped, signal.SIGSTOP)
            with pytest.raises(ResourceError, match="not answered within"):
                await client.infer(row(1, 0, 0, 0), timeout_s=0.1)
            assert await asyncio.wait_for(answer(client, 1, 1, 1, 1), 200) == [1, 2, 3, 4]
            assert (await client.numbers()).pid != stopped

    asyncio.run(run())


@pytest.mark.slow
def test_front_ends_share_a_process_and_one_goes_on_when_the_other_ends(tmp_path: Path) -> None:
    async def run() -> None:
        shared = {"limits": Limits(max_delay_s=0.0), "share": tmp_path / "model.sock"}
        path = "serve.callable.small_models:scaled"
        first = served(path, **shared)  # type: ignore[arg-type]
        one = await first.__aenter__()
        async with served(path, **shared) as other:  # type: ignore[arg-type]
            pid = (await one.numbers()).pid
            assert (await other.numbers()).pid == pid
            assert await answer(other, 1, 1, 1, 1) == [1, 2, 3, 4]
            await first.__aexit__(None, None, None)
            assert await asyncio.wait_for(answer(other, 2, 0, 0, 0), 200) == [2, 0, 0, 0]
            assert (await other.numbers()).pid != pid

    asyncio.run(run())


@pytest.mark.slow
def test_a_model_that_hangs_is_told_once_it_keeps_others_waiting_and_a_lone_request_is_not() -> (
    None
):
    async def run() -> None:
        async with client_of("sleepy", Limits(max_delay_s=0.0)) as client:
            assert client.trouble(0.5) is None
            hanging = asyncio.create_task(client.infer(row(200, 0), timeout_s=150.0))
            while (await client.numbers()).busy_s < 2.0:
                await asyncio.sleep(0.6)  # the heartbeat sees it too
            assert client.trouble(0.5) is None, "a lone request keeps nobody waiting"
            behind = asyncio.create_task(client.infer(row(0, 0), timeout_s=150.0))
            while "running one batch" not in (client.trouble(0.5) or ""):
                await asyncio.sleep(0.05)
                assert not hanging.done()
            assert client.trouble(60.0) is None
            os.kill((await client.numbers()).pid, signal.SIGSTOP)
            while "not been heard of" not in (client.trouble(0.5) or ""):
                await asyncio.sleep(0.05)
            hanging.cancel()
            behind.cancel()

    asyncio.run(asyncio.wait_for(run(), 140))


def test_a_factory_that_does_not_load_is_told_at_once() -> None:
    async def run() -> None:
        with pytest.raises(UsageError, match="has no attribute 'absent'") as caught:
            async with client_of("absent"):
                pass
        assert caught.value.code == "OST6052"

    asyncio.run(run())


def test_half_a_character_in_what_a_factory_raised_is_written_out(tmp_path: Path) -> None:
    setup = Setup("shop:factory", str(tmp_path / "model.sock"), Limits())
    setup.leave(Failure.of(not_started(ValueError("boo \ud800"))))
    told = setup.take_failure()
    assert told is not None
    assert "boo \\ud800" in str(told.error())


async def run_until(words: str, told: Path) -> None:
    """Run a program that is no model until it has written a file, and end it."""
    task = asyncio.create_task(keeper._run([sys.executable, "-c", words, str(told)]))
    while not told.exists() or not told.read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await died(int(told.read_text()))


SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def test_a_stop_does_not_wait_for_a_process_that_is_still_being_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_KILL_AFTER_S", 600.0)  # so that a word alone must do
    asyncio.run(run_until(SLEEPS, tmp_path / "pid"))


def test_a_process_that_hears_no_word_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_KILL_AFTER_S", 0.05)
    asyncio.run(run_until(DEAF + SLEEPS, tmp_path / "pid"))


def test_a_process_that_never_gets_ready_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statuses = iter([1, 1, 1])

    async def ends(*words: object) -> int:
        return next(statuses)

    async def run() -> None:
        monkeypatch.setattr(keeper, "_run", ends)
        with pytest.raises(ResourceError, match="ended 3 times before it was ready") as caught:
            async with served("shop:factory"):
                pass
        assert fault_of(caught.value) is Fault.BROKEN
        assert "send it again" not in caught.value.remedy

    asyncio.run(run())


def test_only_requests_take_a_place_while_no_process_is_there() -> None:
    async def run() -> None:
        client = CallableClient("/nowhere")
        specs = {"x": TensorSpec("FP32", (-1, 4))}
        client._description = Description("1", specs, specs, (1,), 4, 1)
        counting = asyncio.create_task(client.numbers())  # as the heartbeat does
        await asyncio.sleep(0)
        waiting = asyncio.create_task(client.infer(row(1, 1, 1, 1)))
        await asyncio.sleep(0)
        assert not waiting.done()
        with pytest.raises(ResourceError) as full:
            await client.infer(row(1, 1, 1, 1))
        assert fault_of(full.value) is Fault.FULL
        await client.close()
        for one in (counting, waiting):
            with pytest.raises(ResourceError):
                await one

    asyncio.run(run())
