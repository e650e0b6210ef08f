"""Any number of threads: one recording per key, right results, exact counts."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ostinato.graphs import Outcome, Reason, graphed

THREADS = 32


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def together(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """Run `work(0)`, `work(1)`, … at the same time; pass on what they raise."""
    start = threading.Barrier(threads)

    def run(number: int) -> Any:
        start.wait()
        with torch.no_grad():
            return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def test_every_key_is_recorded_once_and_every_answer_is_right(device: torch.device) -> None:
    module = nn.Linear(8, 8, device=device)
    runner = graphed(module)
    calls = 30

    def work(number: int) -> None:
        for turn in range(calls):
            x = torch.full((1 + number % 4, 8), float(number * calls + turn), device=device)
            torch.testing.assert_close(runner(x), module(x))

    together(work)
    report = runner.report()
    assert report.recordings == len(report.graphs) == 4
    assert report.recaptures == 0
    assert report.calls == THREADS * calls
    eager = report.reasons["not-admitted-yet"] + report.reasons.get("being-recorded", 0)
    assert report.calls == report.replays + report.recordings + eager
    assert sum(graph.hits for graph in report.graphs) == report.replays


def test_a_runner_built_in_one_thread_serves_others(device: torch.device) -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    x = torch.ones(4, device=device)
    runner(x)
    runner(x)

    def work(number: int) -> Outcome:
        assert runner(x * number).tolist() == [2.0 * number] * 4
        assert runner.last is not None
        return runner.last.outcome

    assert set(together(work)) == {Outcome.REPLAYED}
    assert runner.report().recordings == 1


def test_last_is_that_of_the_thread_s_own_call(device: torch.device) -> None:
    runner = graphed(lambda x: x * 2, admit_after=1)
    runner(torch.ones(1, device=device))

    def work(number: int) -> bool:
        wants_replay = number % 2 == 0
        x = torch.ones(1 if wants_replay else 0, device=device)
        for _ in range(20):
            runner(x)
            assert runner.last is not None
            if (runner.last.outcome is Outcome.REPLAYED) is not wants_replay:
                return False
        return True

    assert all(together(work))


def test_an_answer_is_the_caller_s_own_whatever_others_do(device: torch.device) -> None:
    runner = graphed(lambda x: x + 1, admit_after=1)

    def work(number: int) -> None:
        kept = [runner(torch.full((64,), float(number), device=device)) for _ in range(20)]
        for y in kept:
            assert y.tolist() == [number + 1.0] * 64

    together(work)


def test_state_moves_on_once_per_replay(device: torch.device) -> None:
    count = torch.zeros((), dtype=torch.int64, device=device)

    def step(x: Tensor) -> Tensor:
        count.add_(1)
        return x + count

    runner = graphed(step, admit_after=1)
    runner(torch.zeros(1, device=device))

    def work(number: int) -> list[float]:
        return [runner(torch.zeros(1, device=device)).item() for _ in range(10)]

    seen = [value for values in together(work) for value in values]
    assert sorted(seen) == [float(n) for n in range(2, 2 + THREADS * 10)]


def test_train_and_eval_may_alternate_between_threads(device: torch.device) -> None:
    # Each thread has a module of its own in its mode; they share one runner.
    modules = [nn.Dropout(0.5).train(number % 2 == 0) for number in range(2)]
    runner = graphed(lambda module, x: module(x), admit_after=1)
    x = torch.ones(512, device=device)

    def work(number: int) -> None:
        module = modules[number % 2]
        for _ in range(20):
            zeros = int((runner(module, x) == 0).sum())
            assert (100 < zeros < 400) is module.training

    together(work, 8)


def test_closing_while_others_call_breaks_nothing(device: torch.device) -> None:
    for _ in range(5):
        runner = graphed(lambda x: x * 2)
        started = threading.Event()

        def work(number: int, runner: Any = runner, started: Any = started) -> None:
            if number == 0:
                started.wait()
                runner.close()
                return
            for turn in range(50):
                x = torch.full((number % 3 + 1,), float(turn), device=device)
                assert torch.equal(runner(x), x * 2)
                started.set()

        together(work, 6)
        report = runner.report()
        assert (report.bytes, report.graphs) == (0, ())
        assert report.calls == 5 * 50
        runner(torch.ones(1, device=device))
        assert runner.last is not None
        assert runner.last.reason is Reason.CLOSED


def test_dropping_everything_while_others_call_breaks_nothing(device: torch.device) -> None:
    module = nn.Linear(2, 2, bias=False, device=device)
    runner = graphed(module, admit_after=1)

    def work(number: int) -> None:
        for turn in range(40):
            if number == 0:
                runner.invalidate("a test")
            x = torch.full((1 + number % 2, 2), float(turn), device=device)
            torch.testing.assert_close(runner(x), module(x))

    together(work, 8)
    report = runner.report()
    assert report.calls == 8 * 40
    eager = report.calls - report.replays
    assert eager > 0


def test_weights_replaced_while_others_call_are_never_stale_afterwards(
    device: torch.device,
) -> None:
    module = nn.Linear(1, 1, bias=False, device=device).requires_grad_(False)
    nn.init.ones_(module.weight)
    runner = graphed(module, admit_after=1)
    replaced = [1.0]

    def work(number: int) -> None:
        for turn in range(60):
            if number == 0:
                by = float(turn + 1)
                module.weight = nn.Parameter(
                    torch.full((1, 1), by, device=device), requires_grad=False
                )
                replaced[0] = by
            at_least = replaced[0]
            y = runner(torch.ones(1 + number % 2, 1, device=device))
            if number == 0:
                assert y.flatten()[0].item() == by
            else:
                assert y.flatten()[0].item() >= at_least

    together(work, 4)
    assert runner(torch.ones(1, 1, device=device)).item() == 60.0


@pytest.mark.gpu
def test_a_thread_that_pins_memory_neither_breaks_a_capture_nor_is_broken() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def pin() -> None:
        while not stop.is_set():
            try:
                torch.ones(1024).pin_memory()
            except RuntimeError as error:
                failures.append(error)
                return

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        for length in range(1, 9):
            runner = graphed(lambda x: (x * 2).relu() + 1, admit_after=1)
            x = torch.ones(length, device="cuda")
            runner(x)
            runner(x)
            assert runner.last is not None
            assert runner.last.outcome is Outcome.REPLAYED, runner.last
    finally:
        stop.set()
        thread.join()
    assert failures == []


@pytest.mark.gpu
def test_a_result_is_valid_on_the_caller_s_stream() -> None:
    runner = graphed(lambda x: (x @ x).sum(), admit_after=1)
    xs = [torch.full((1024, 1024), float(n), device="cuda") for n in range(1, 9)]
    runner(xs[0])
    torch.cuda.synchronize()
    found = []
    for n, x in enumerate(xs):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found.append(runner(x) / float(n + 1) ** 2)
    torch.cuda.synchronize()
    for value in found:
        torch.testing.assert_close(value, found[0])
