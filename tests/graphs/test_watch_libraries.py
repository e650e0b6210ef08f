"""Libraries are not walked, but what people change in them is noticed before the next replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from torch.nn import functional as F  # noqa: N812 - as everybody imports it

from graphs.replaying import check_replay
from ostinato.graphs import Outcome, Runner, graphed

pytestmark = pytest.mark.filterwarnings("ignore::ostinato.graphs.OstinatoWarning")


def _recorded(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Runner[..., Any]:
    runner = graphed(fn, admit_after=1)
    runner(*args, **kwargs)
    check_replay(runner, *args, **kwargs)
    return runner


def _assert_as_eager(runner: Runner[..., Any], *args: Any, **kwargs: Any) -> None:
    torch.testing.assert_close(runner(*args, **kwargs), runner.fn(*args, **kwargs))


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


# Configurations of transformers.


def _llama() -> Any:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=32, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    return transformers.LlamaModel(config).eval()


IDS = torch.arange(4).unsqueeze(0)


def test_an_output_that_is_asked_for_in_the_configuration_comes() -> None:
    model = _llama()
    runner = _recorded(model, IDS)
    model.config.output_hidden_states = True
    assert runner(IDS).hidden_states is not None


def test_a_configuration_below_that_of_the_model_is_watched_too() -> None:
    model = _llama()

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, ids: Tensor) -> Any:
            return self.inner(ids)

    runner = _recorded(Wrapped(), IDS)
    model.config.return_dict = False
    assert isinstance(runner(IDS), tuple)


def test_another_implementation_of_attention_is_recorded_anew() -> None:
    model = _llama()
    runner = _recorded(model, IDS)
    model.set_attn_implementation("eager")
    runner(IDS)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED
    model.config.output_attentions = True
    assert runner(IDS).attentions[0] is not None


def test_an_entry_of_a_configuration_is_watched() -> None:
    model = _llama()
    runner = _recorded(model, IDS)
    model.config.rope_parameters["rope_theta"] = 5.0
    runner(IDS)
    assert runner.last is not None
    assert runner.last.outcome is Outcome.RECORDED


def test_a_name_in_a_configuration_that_no_run_reads_may_change() -> None:
    model = _llama()
    runner = _recorded(model, IDS)
    model.config._name_or_path = "elsewhere"
    check_replay(runner, IDS)


# Functions and methods that are exchanged for others.


def _relu(x: Tensor) -> Tensor:
    return F.relu(x)


def _relu_by_its_full_name(x: Tensor) -> Tensor:
    return torch.nn.functional.relu(x)


def _imported_by_name(x: Tensor) -> Tensor:
    return from_there(x)


from_there = functional.relu


def _triple(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x * 3


X = torch.tensor([-1.0, 2.0])


@pytest.mark.parametrize("fn", [_relu, _relu_by_its_full_name, nn.ReLU(), nn.Sequential(nn.ReLU())])
def test_a_function_of_torch_that_is_patched_is_called(
    fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = _recorded(fn, X)
    monkeypatch.setattr(functional, "relu", _triple)
    assert torch.equal(runner(X), X * 3)


def test_what_patched_a_function_of_torch_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = [2.0]

    def patched(x: Tensor, inplace: bool = False) -> Tensor:
        return x * factor[0]

    monkeypatch.setattr(functional, "relu", patched)
    runner = _recorded(_relu, X)
    factor[0] = 5.0
    assert torch.equal(runner(X), X * 5)


def test_a_builtin_function_of_torch_that_is_patched_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = _recorded(lambda x: torch.tanh(x), X)
    monkeypatch.setattr(torch, "tanh", _triple)
    assert torch.equal(runner(X), X * 3)


def test_a_library_function_imported_by_name_and_rebound_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = _recorded(_imported_by_name, X)
    monkeypatch.setitem(globals(), "from_there", functional.silu)
    _assert_as_eager(runner, X)


def test_a_function_that_a_model_of_transformers_calls_may_be_patched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers.models.llama import modeling_llama

    model = _llama()
    runner = _recorded(model, IDS)
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, *_, **__: (q, k))
    _assert_as_eager(runner, IDS)


@pytest.mark.parametrize("kind", [nn.ReLU, nn.Module])
def test_a_method_of_a_class_of_torch_that_is_patched_is_called(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = _recorded(nn.Sequential(nn.ReLU()), X)
    name = "forward" if kind is nn.ReLU else "__call__"
    monkeypatch.setattr(kind, name, lambda self, x: x * 3)
    assert torch.equal(runner(X), X * 3)


class Own(nn.Module):
    @classmethod
    def by_class(cls, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def static(x: Tensor) -> Tensor:
        return x * 2

    @property
    def factor(self) -> float:
        return 2.0

    def forward(self, x: Tensor) -> Tensor:
        return self.by_class(x) + self.static(x) * self.factor


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("by_class", classmethod(lambda cls, x: x * 7)),
        ("static", staticmethod(lambda x: x * 7)),
        ("factor", property(lambda self: 7.0)),
    ],
)
def test_members_of_a_class_of_any_sort_are_watched(
    name: str, member: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = _recorded(Own(), X)
    check_replay(runner, X)  # a class method is another object each time it is asked for
    monkeypatch.setattr(Own, name, member)
    _assert_as_eager(runner, X)


def test_a_method_that_comes_to_a_subclass_is_noticed() -> None:
    class Derived(Own):
        pass

    runner = _recorded(Derived(), X)
    Derived.static = staticmethod(lambda x: x * 7)  # type: ignore[method-assign]
    _assert_as_eager(runner, X)


# What else is read by name.


@pytest.mark.parametrize("name", ["OSTINATO_TEST_NEW", "OSTINATO_TEST_OLD"])
def test_a_variable_of_the_environment_that_the_code_reads_is_watched(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSTINATO_TEST_OLD", "2")
    for step in (
        lambda x: x * float(os.environ.get(name, "3")),
        lambda x: x * float(os.getenv(name, "3")),
    ):
        runner = _recorded(step, X)
        with monkeypatch.context() as inside:
            inside.setenv(name, "7")
            assert torch.equal(runner(X), X * 7)


def test_an_attribute_of_a_tensor_that_the_code_reads_is_watched() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.weight.scale = 2.0  # type: ignore[attr-defined]
            self.weight.unread = 2.0  # type: ignore[attr-defined]

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight * self.weight.scale

    module = Scaled()
    runner = _recorded(module, X)
    module.weight.unread = 7.0  # type: ignore[attr-defined]
    check_replay(runner, X)
    module.weight.scale = 7.0  # type: ignore[attr-defined]
    assert torch.equal(runner(X), X * 7)
