"""A callable in a process of its own: answers, deadlines, and what its death means to whom."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ostinato.errors import OstinatoError, ResourceError
from ostinato.serve.callable import Array, CallableService, Fault, Limits, fault_of, served
from ostinato.serve.callable.arrays import from_numbers, numbers
from ostinato.serve.callable.client import CallableClient

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
            assert await client.drain(5.0)
            assert await waiting == [1, 2, 3, 4]
            assert not client.is_ready
            with pytest.raises(ResourceError) as closing:
                await client.infer(row(1, 1, 1, 1))
            assert fault_of(closing.value) is Fault.CLOSING
            pid = told.pid
        await asyncio.wait_for(died(pid), 5)

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
            assert await asyncio.wait_for(waiting, 60) == [1, 2, 3, 4]
            assert await other == [2, 0, 0, 0]
            told = await client.numbers()
            assert told.pid != first
            assert told.answered == 2

    asyncio.run(run())


@pytest.mark.slow
def test_a_request_that_ends_two_processes_is_refused_and_nothing_hangs() -> None:
    async def run() -> None:
        async with client_of("fatal", Limits(max_batch=2, max_delay_s=0.0)) as client:
            with pytest.raises(ResourceError, match="ended twice with this request") as caught:
                await asyncio.wait_for(client.infer(row(99, 0)), 60)
            assert fault_of(caught.value) is Fault.BROKEN
            assert not client.is_broken
            assert await asyncio.wait_for(answer(client, 1, 2), 60) == [2, 3]

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
            assert await asyncio.wait_for(answer(other, 2, 0, 0, 0), 60) == [2, 0, 0, 0]
            assert (await other.numbers()).pid != pid

    asyncio.run(run())


@pytest.mark.slow
def test_a_model_that_hangs_is_told_while_its_process_still_answers() -> None:
    async def run() -> None:
        async with client_of("sleepy", Limits(max_delay_s=0.0)) as client:
            assert client.trouble(0.5) is None
            hanging = asyncio.create_task(client.infer(row(60, 0), timeout_s=5.0))
            while client.trouble(0.5) is None:
                await asyncio.sleep(0.05)
                assert not hanging.done()
            assert "running one batch" in (client.trouble(0.5) or "")
            assert client.trouble(60.0) is None
            os.kill((await client.numbers()).pid, signal.SIGSTOP)
            while "not been heard of" not in (client.trouble(0.5) or ""):
                await asyncio.sleep(0.05)
            hanging.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_factory_that_does_not_load_is_told_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        with pytest.raises(ResourceError, match="could not load the callable") as caught:
            async with client_of("absent"):
                pass
        assert fault_of(caught.value) is Fault.BROKEN

    asyncio.run(run())
    assert "OST6052" in capfd.readouterr().err
