"""Fast paths of torch's own layers are taken while a run is watched, as in a plain run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.replaying import check_replay, record
from ostinato.graphs.observe import observe
from ostinato.graphs.observe_fast_paths import watched_as_if_plain

CPU = torch.device("cpu")


def attention() -> Callable[[Tensor], Tensor]:
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    return lambda x: module(x, x, x, need_weights=False)[0]


LAYERS: dict[str, Callable[[], Any]] = {
    "attention": attention,
    "layer": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
    ).eval(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_replay_has_the_bits_and_the_strides_of_eager(name: str, device: torch.device) -> None:
    with torch.no_grad():
        layer = LAYERS[name]()
        if isinstance(layer, nn.Module):
            layer.to(device)
        elif device.type != "cpu":
            pytest.skip("the module is in a closure")
        x = torch.randn(2, 5, 8, device=device)
        g = record(layer, x)
        eager = layer(x)
        replayed = check_replay(g, x)
        assert torch.equal(replayed, eager)
        assert replayed.stride() == eager.stride()


def test_the_watched_run_takes_the_fast_path() -> None:
    x = torch.randn(2, 5, 8)
    layer = LAYERS["layer"]()
    with torch.no_grad():
        seen = observe(lambda: layer(x), [x], device=CPU)
    assert seen.ops == 1


class Tagged(Tensor):
    """Overrides torch's functions."""


def test_only_our_own_watching_is_left_out() -> None:
    asks = torch.overrides.has_torch_function
    answers: dict[str, bool] = {}

    def step() -> Tensor:
        ask = torch.overrides.has_torch_function
        assert ask is not asks
        answers["plain"] = ask((torch.ones(1),))
        answers["subclass"] = ask((torch.ones(1).as_subclass(Tagged),))
        with torch.device("cpu"):
            answers["in a mode"] = ask((torch.ones(1),))
        return torch.ones(1)

    observe(step, [], device=CPU)
    assert answers == {"plain": False, "subclass": True, "in a mode": True}
    assert torch.overrides.has_torch_function is asks


def test_another_thread_gets_the_true_answer() -> None:
    answers = []

    def ask() -> None:
        with torch.device("cpu"):
            answers.append(torch.overrides.has_torch_function((torch.ones(1),)))

    with watched_as_if_plain():
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert answers == [True]
