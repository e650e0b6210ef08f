"""Targets: what `pkg.mod:factory` may name, and what a factory may return."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ostinato.doctor.check.run import check
from ostinato.doctor.check.target import Call, find_factory, read_call
from ostinato.doctor.check.verdict import Verdict
from ostinato.errors import UsageError


def step(*args: object, **kwargs: object) -> None: ...


X = torch.ones(2)
FORMS: dict[str, tuple[object, Call]] = {
    "pair": ((step, (X, 1)), Call(step, (X, 1), {})),
    "triple": ((step, [X], {"n": 1}), Call(step, (X,), {"n": 1})),
    "one tensor": ((step, X), Call(step, (X,), {})),
    "keywords alone": ((step, {"n": 1}), Call(step, (), {"n": 1})),
    "dict": ({"fn": step, "args": (X,)}, Call(step, (X,), {})),
    "list": ([step, (), {}], Call(step, (), {})),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_factory_is_read(form: str) -> None:
    made, call = FORMS[form]
    read = read_call(made)
    assert (read.fn, len(read.args), read.kwargs) == (call.fn, len(call.args), call.kwargs)
    assert all(one is other for one, other in zip(read.args, call.args, strict=True))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "of type NoneType"),
        (nn.Linear(2, 2), "of type Linear"),
        ((X, step), "a tuple of (Tensor, function)"),
        ((step,), "a tuple of (function)"),
        ((step, 3), "of type int"),
        ((step, (), 3), "of type int"),
        ((step, (), {1: 2}), "of type dict"),
        ({"args": ()}, "of type dict"),
    ],
)
def test_anything_else_is_refused_and_said(made: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_call(made)
    assert caught.value.code == "OST7051"
    assert said in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "found_here.py").write_text("def make():\n    return 1\n\nNUMBER = 3\n", "utf-8")
    (tmp_path / "needs_more.py").write_text("import no_such_thing_at_all\n", "utf-8")
    (tmp_path / "exits.py").write_text("raise SystemExit(7)\n", "utf-8")
    (tmp_path / "raises.py").write_text("1 / 0\n", "utf-8")
    (tmp_path / "on_import.py").write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2).cuda()\n"
        "def make():\n    return model, torch.ones(1, 2).cuda()\n",
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_function_of_a_module_in_the_current_folder_is_found(folder: Path) -> None:
    assert find_factory("found_here:make")() == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("found_here", "not of the form"),
        (":make", "not of the form"),
        ("found_here:", "not of the form"),
        ("found_there:make", "no module 'found_there'"),
        ("found_here:other", "has no 'other'"),
        ("found_here:NUMBER", "is of type int"),
        ("not_there.py:make", "there is no file 'not_there.py'"),
    ],
)
def test_a_target_that_names_nothing_is_refused(folder: Path, target: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_factory(target)
    assert caught.value.code == "OST7050"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("needs_more", "ModuleNotFoundError: No module named 'no_such_thing_at_all'"),
        ("raises", "ZeroDivisionError: division by zero at raises.py:1 `1 / 0`"),
        ("exits", "SystemExit: 7"),
    ],
)
def test_a_module_that_raises_when_it_is_imported_is_an_error_with_its_words(
    folder: Path, module: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        find_factory(f"{module}:make")
    assert caught.value.code == "OST7052"
    assert said in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU that it can use")
def test_a_module_that_needs_a_gpu_to_be_imported_is_imported_while_one_is_pretended(
    folder: Path,
) -> None:
    factory = find_factory("on_import:make")
    checked = check(factory)
    assert checked.verdict is Verdict.CAPTURABLE
    assert checked.answers[1].evidence == "cuda:0"
