"""A factory that fails: what it raised and at which of the user's lines, to who serves it alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.serve.callable import served
from ostinato.serve.callable.blame import words_of
from ostinato.serve.callable.client import CallableClient
from ostinato.serve.callable.declaration import make
from ostinato.serve.callable.faults import Failure

SHOP = """\
import json
import sys
import torch
from ostinato.serve.callable import Servable, TensorSpec


def deep():
    raise RuntimeError("no weights\\n  in sight")


def plain():
    deep()


def in_a_library():
    json.loads("{")


def gives_up():
    sys.exit("no weights")


def silent():
    raise ValueError


def fails_on_zeros():
    return Servable(bad, inputs={"x": TensorSpec("FP32", (-1, 4))}, batch_sizes=(1,))


def bad(x):
    return 1 / int(x.sum())



def unlucky():
    made = Servable(torch.nn.Identity(), inputs={"input": TensorSpec("FP32", (-1, 4))})
    object.__setattr__(made, "device", "nothing:0")
    return made
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    file = tmp_path / f"{name}.py"
    file.write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return file


def line(words: str) -> int:
    return next(n for n, text in enumerate(SHOP.splitlines(), 1) if words in text)


@pytest.mark.parametrize(
    ("factory", "said", "at"),
    [
        ("plain", "RuntimeError: no weights in sight", 'RuntimeError("no'),
        ("in_a_library", "JSONDecodeError: Expecting property name", 'loads("{")'),
        ("gives_up", "SystemExit: no weights", "sys.exit"),
        ("silent", "ValueError, at", "raise ValueError"),
    ],
)
def test_the_words_and_the_users_line_are_told(
    shop: Path, factory: str, said: str, at: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make(f"{shop.stem}:{factory}")
    problem = str(caught.value.args[0])
    assert caught.value.code == "OST6052"
    assert said in problem
    assert f"at {shop}:{line(at)} in " in problem
    assert "\n" not in problem


def test_a_file_that_is_no_python_and_one_that_is_not_there(shop: Path) -> None:
    broken = shop.with_name(f"broken_{shop.name}")
    broken.write_text("import os\ndef factory(:\n")
    with pytest.raises(UsageError, match="SyntaxError: ") as caught:
        make(f"{broken.stem}:factory")
    assert f"at {broken}:2" in str(caught.value)
    with pytest.raises(UsageError, match="No module named 'not_to_be_found'") as lost:
        make("not_to_be_found.shop:factory")
    assert "PYTHONPATH" in lost.value.remedy
    assert " at " not in str(lost.value.args[0])


def test_long_words_are_cut() -> None:
    assert words_of(ValueError("x" * 5000)) == f"ValueError: {'x' * 300}..."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "code", "said", "at"),
    [
        ("plain", "OST6052", "RuntimeError: no weights in sight", 'RuntimeError("no'),
        ("fails_on_zeros", "OST6055", "ZeroDivisionError", "1 / int"),
    ],
)
def test_the_last_words_of_the_command_are_the_cause(
    shop: Path, factory: str, code: str, said: str, at: str
) -> None:
    words = ["serve", "--callable", f"{shop.stem}:{factory}", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "ostinato.cli", *words],
        cwd=shop.parent, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    last = done.stderr[done.stderr.rindex(f"{code}: ") :]
    problem, remedy, more = last.splitlines()
    assert said in problem
    assert f"{shop}:{line(at)}" in problem
    assert remedy.startswith("  try:  ")
    assert more == f"  more: ostinato explain {code}"
    assert "send it again" not in done.stderr
    assert "Traceback" in done.stderr


@pytest.mark.slow
def test_what_was_raised_outside_of_the_factory_is_tried_again_and_told(shop: Path) -> None:
    async def run() -> None:
        with pytest.raises(ResourceError, match="could not be made ready: RuntimeError") as caught:
            async with served(f"{shop.stem}:unlucky"):
                pass
        assert caught.value.code == "OST6056"
        assert "send it again" not in caught.value.remedy

    asyncio.run(run())


def test_clients_of_a_model_that_is_given_up_are_not_told_the_cause() -> None:
    async def run() -> None:
        client = CallableClient("/nowhere")
        with pytest.raises(ResourceError) as early:
            assert client.description
        assert "not ready yet" in str(early.value)
        cause = Failure("OST6052", "shop:factory cannot be called: /secret/path", "correct it")
        client.break_off("could not load the model", cause)
        with pytest.raises(OstinatoError) as served_to_whom_serves:
            await client.wait_ready()
        assert served_to_whom_serves.value.code == "OST6052"
        with pytest.raises(ResourceError) as late:
            assert client.description
        assert "secret" not in str(late.value)
        assert "send it to another server" in str(late.value)
        await client.close()

    asyncio.run(run())


def test_whoever_serves_a_model_that_never_got_ready_is_not_sent_to_another_server() -> None:
    async def run() -> None:
        client = CallableClient("/nowhere")
        client.break_off("ended 3 times before it was ready", None)
        with pytest.raises(ResourceError, match="ended 3 times before it was ready") as caught:
            await client.wait_ready()
        assert caught.value.code == "OST6056"
        assert "call the factory in a Python shell" in str(caught.value)
        assert "another server" not in str(caught.value)
        await client.close()

    asyncio.run(run())


def test_last_words_are_read_once_and_damaged_ones_not_at_all(tmp_path: Path) -> None:
    from ostinato.serve.callable.setup import Limits, Setup

    setup = Setup("shop:factory", str(tmp_path / "model.sock"), Limits())
    assert setup.take_failure() is None
    failure = Failure("OST6052", "why", "what to do", is_usage=True)
    setup.leave(failure)
    assert setup.take_failure() == failure
    assert setup.take_failure() is None
    (tmp_path / "model.failure").write_text(json.dumps({"code": 3}))
    assert setup.take_failure() is None
