"""`ostinato bench serve`: client processes, a server on this machine, and the result."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.serve.scripted_server import Scripted, scripted
from bench.serve.test_client import good
from ostinato import cli


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A server on a thread: the command blocks this one."""
    found: list[Scripted] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with scripted(good) as one:
            found.append(one)
            is_up.set()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(5)
    yield found[0]
    is_over.set()
    thread.join()


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "serve", "--device", "cpu", *map(str, words)])
    shown = capfd.readouterr()
    return int(exit_.value.code or 0), shown.out, shown.err


def test_loads_are_measured_one_after_the_other_and_compared(
    server: Scripted, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "serve.json"
    words = ("--url", f"http://127.0.0.1:{server.port}", "--streams", "4", "--requests", "2",
             "--rates", "20", "--seconds", "0.5", "--rising", "0.2", "--prompt", "3", "--new", "3",
             "--clients", "2")  # fmt: skip
    code, shown, err = run(capfd, *words, "--out", out)
    assert code == 0, err
    result = json.loads(shown.splitlines()[-1])
    assert json.loads(out.read_text()) == result
    assert result["benchmark"] == "serve"
    assert result["machine"]["cpu"]
    closed, at_random = result["rows"]
    assert (closed["model"], closed["load"], closed["requests"]) == ("scripted", "4 streams", 8)
    assert closed["errors"] == at_random["errors"] == {}
    assert closed["whole"] == 8
    assert closed["ttft_ms"]["p50"] >= 30
    assert closed["tok_s"] > 0
    assert at_random["load"] == "20 requests/s"
    assert at_random["whole"] == at_random["requests"] > 0
    assert "8 of 8 answered" in shown

    better = {**result, "rows": [{**closed, "ttft_ms": {"p50": 1.0}}]}
    out.write_text(json.dumps(better))
    code, shown, err = run(capfd, *words[:6], *words[12:], "--compare", out)
    assert code == 2
    assert json.loads(shown.splitlines()[-1])["rows"]
    assert "OST4025" in err
    assert "ttft_ms p50" in err


@pytest.mark.slow
def test_a_server_is_started_measured_and_ended(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "smollm2-135m", "--tiny", "--streams", "6", "--new", "16", "--prompt", "8",
             "--vocabulary", "500", "--cancelled", "0.4", "--clients", "2")  # fmt: skip
    code, shown, err = run(capfd, *words)
    assert code == 0, err
    result = json.loads(shown.splitlines()[-1])
    [row] = result["rows"]
    assert row["model"] == "smollm2-135m"
    assert row["errors"] == {}
    assert row["requests"] == 24
    assert row["cancelled"] > 0
    assert row["whole"] == 24 - row["cancelled"]
    assert row["tok_s"] * row["seconds"] == pytest.approx(16 * row["whole"])
    server = result["server"]
    assert server["ready_s"] > 0
    assert "--model smollm2-135m --engine load=dummy" in server["command"]
    assert server["objectives"] == "ttft=off, itl=off"
    port = int(server["command"].split("--port ")[1].split()[0])
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", port)) != 0  # it is gone


@pytest.mark.slow
def test_a_trace_and_a_closed_loop_are_measured_beside_the_engine_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ("--model", "smollm2-135m", "--tiny", "--beside", "--streams", "2", "--new", "16",
             "--prompt", "8", "--speeds", "20,full", "--seconds", "10", "--max-len", "64",
             "--rising", "0", "--clients", "1")  # fmt: skip
    code, shown, err = run(capfd, *words)
    assert code == 0, err
    closed, paced, full = json.loads(shown.splitlines()[-1])["rows"]
    assert [row["load"] for row in (paced, full)] == ["trace x20", "trace, full, 256 streams"]
    assert paced["beside"] is None  # as fast as it comes is no share of what an engine can do
    for row in (closed, full):
        assert row["errors"] == {}
        assert row["beside"]["error"] == ""
        assert row["beside"]["share"] == pytest.approx(row["tok_s"] / row["beside"]["tok_s"])
        # On a busy machine half of the answers may come in one frame: no time per token at all.
        per_token_ms = row["tpot_ms"]["p50"]
        assert row["beside"]["times"] == pytest.approx(per_token_ms / row["beside"]["tpot_ms"])
    assert closed["beside"]["tok_s"] > 0
    assert "beside the engine alone: " in shown
    assert err.index("the engine alone") < err.index("waiting for the server")


@pytest.mark.slow
def test_bursts_are_shed_cleanly_and_who_is_let_in_is_served_well(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ("--model", "smollm2-135m", "--tiny", "--arrivals", "code", "--speeds", "60",
             "--seconds", "120", "--max-len", "200", "--rising", "0", "--clients", "2",
             "--ttft-ms", "60000", "--tpot-ms", "60000",
             "--server", "--max-waiting 4 --max-batch 2 --objective ttft=30")  # fmt: skip
    code, shown, err = run(capfd, *words)
    assert code == 0, err
    result = json.loads(shown.splitlines()[-1])
    assert result["server"]["objectives"] == "ttft=30"
    [row] = result["rows"]
    assert row["shed"] > 0, "the queue holds four, and dozens come at once"
    assert row["shed_without_retry"] == 0
    assert row["errors"] == {}, "neither a 5xx nor a stream that is cut"
    assert row["whole"] == row["requests"] - row["shed"] > 0
    assert row["kept_of_accepted"] == 1.0


@pytest.mark.slow
def test_an_engine_alone_that_does_not_start_says_what_it_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    status, out, err = run(capfd, "--model", "/there/is/none", "--beside")
    assert (status, out) == (2, "")
    assert "OST4042: the engine alone ended with status 1" in err
    assert "/there/is/none" in err


@pytest.mark.slow
def test_a_server_that_does_not_start_says_what_it_said(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capfd, "--model", "/there/is/none")
    assert (status, out) == (2, "")
    assert "OST4042: the server ended with status 2" in err
    assert "/there/is/none" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "OST4021"),
        (("--url", "http://127.0.0.1:1", "--model", "smollm2"), "OST4021"),
        (("--url", "http://127.0.0.1:1", "--streams", "none"), "OST4021"),
        (("--url", "http://127.0.0.1:1", "--api", "ollama"), "OST4021"),
        (("--url", "http://192.0.2.1:8000"), "OST4041"),
        (("--url", "https://localhost:8000"), "OST4041"),
        (("--url", "http://127.0.0.1:1"), "OST4042"),
        (("--url", "http://127.0.0.1:1", "--compare", __file__), "OST4024"),
        (("--url", "http://127.0.0.1:1", "--beside"), "OST4021"),
        (("--model", "smollm2", "--beside", "--cancelled", "0.1"), "OST4021"),
        (("--url", "http://127.0.0.1:1", "--speeds", "1", "--arrivals", "/no/file"), "OST4022"),
        (
            ("--url", "http://127.0.0.1:1", "--speeds", "1", "--seconds", "3", "--rising", "3"),
            "OST4021",
        ),
        (("--url", "http://127.0.0.1:1", "--rates", "0.001", "--seconds", "0.1"), "OST4021"),
        (("--url", "http://127.0.0.1:1", "--speeds", "1", "--arrivals", __file__), "OST4022"),
    ],
)
def test_what_cannot_be_measured_is_told(
    words: tuple[str, ...], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capfd, *words)
    assert (status, out) == (2, "")
    assert f"{code}: " in err
