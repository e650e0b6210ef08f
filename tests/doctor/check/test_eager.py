"""A call that fails by itself is no matter of capture: an error of use, with its own words."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ostinato.doctor.check import eager
from ostinato.doctor.check.run import check
from ostinato.doctor.check.target import find_factory
from ostinato.doctor.check.verdict import Verdict
from ostinato.errors import UsageError


def on_gpu(*shape: int) -> Tensor:
    return torch.ones(*shape, device="cuda")


def raising(x: Tensor) -> Tensor:
    raise ValueError("no such head")


def of_two(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def multiplied(x: Tensor) -> Tensor:
    return x @ x


FAILING = {
    "shapes": (lambda: (multiplied, on_gpu(2, 3)), "RuntimeError: mat1 and mat2", "x @ x"),
    "on the host": (lambda: (multiplied, torch.ones(2, 3)), "mat1 and mat2", "x @ x"),
    "layers": (lambda: (nn.Linear(4, 4).cuda(), on_gpu(2, 3)), "mat1 and mat2", ""),
    "raises": (lambda: (raising, on_gpu(2)), "ValueError: no such head", "raise ValueError"),
    "missing": (lambda: (of_two, on_gpu(2)), "missing 1 required positional argument: 'y'", ""),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_call_that_fails_by_itself_is_refused_with_its_error_and_line(name: str) -> None:
    factory, words, line = FAILING[name]
    with pytest.raises(UsageError) as caught:
        check(factory)
    assert caught.value.code == "OST7054"
    assert words in str(caught.value)
    assert line in str(caught.value)


def test_what_raises_only_while_it_is_captured_stands_in_the_way_of_a_capture() -> None:
    def step(x: Tensor) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not now")
        return x * 2

    assert check(lambda: (step, on_gpu(3))).verdict is Verdict.NOT_CAPTURABLE


def test_what_only_fails_without_contents_is_left_open() -> None:
    def step(x: Tensor) -> Tensor:
        if type(x) is not Tensor:
            raise_from_inside(x)
        return x * 2

    def raise_from_inside(x: Tensor) -> None:
        int("none")

    checked = check(lambda: (step, on_gpu(3)))
    assert checked.verdict is Verdict.UNKNOWN
    assert "it raised ValueError" in checked.gaps[0].what


def test_another_error_for_real_is_not_taken_for_the_same() -> None:
    def step(x: Tensor) -> Tensor:
        return x[int("none")] if type(x) is not Tensor else x @ x

    assert check(lambda: (step, on_gpu(2, 3))).verdict is Verdict.UNKNOWN


def test_a_call_that_needs_much_memory_is_not_made_for_real(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eager, "_MOST_BYTES", 8)
    checked = check(lambda: (multiplied, on_gpu(2, 3)))
    assert checked.verdict is Verdict.UNKNOWN
    assert "it raised RuntimeError" in checked.gaps[0].what


def test_a_coroutine_function_is_refused_and_leaves_no_coroutine_behind() -> None:
    async def factory() -> object:
        return multiplied, on_gpu(2, 2)

    async def step(x: Tensor) -> Tensor:
        return x

    with warnings.catch_warnings(action="error"):
        for made, who in ((factory, "the factory is"), (lambda: (step, on_gpu(2)), "the callable")):
            with pytest.raises(UsageError, match=f"{who}.*coroutine function") as caught:
                check(made)
            assert caught.value.code == "OST7051"
            assert "plain function" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "target", "said"),
    [
        ("plain.py", "plain.py:make", "run `ostinato check plain:make`"),
        ("below/plain.py", "below/plain.py:make", "below' && ostinato check plain:make`"),
        ("pkg/mod.py", "pkg/mod.py:make", "run `ostinato check pkg.mod:make`"),
        ("json.py", "json.py:make", "name that can be imported"),
        ("a.b.py", "./a.b.py:make", "name that can be imported"),
    ],
)
def test_a_path_is_answered_with_the_module_that_it_is(
    file: str, target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "at home"
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text("def make(): ...\n", "utf-8")
    if file.startswith("pkg/"):
        (folder / "pkg" / "__init__.py").write_text("", "utf-8")
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError) as caught:
        find_factory(target)
    assert caught.value.code == "OST7050"
    assert said in str(caught.value)
