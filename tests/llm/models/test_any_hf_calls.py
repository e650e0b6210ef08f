"""Attention calls: a window is told from the rule that a mask follows, never guessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ostinato.errors import UsageError
from ostinato.llm.models.any_hf_calls import Call, rope_types, shape_of, window_of

Rule = Callable[..., Any]


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return k <= q


def sliding(window: int) -> Rule:
    return lambda b, h, q, k: (k <= q) & (k > q - window)


def call(layer: int | None = 0, **changes: Any) -> Call:
    plain: dict[str, Any] = {
        "layer": layer, "q": (1, 4, 2, 8), "k": (1, 2, 2, 8), "v": (1, 2, 2, 8), "scale": 0.5,
        "rule": causal, "is_causal": True, "more": {},
    }  # fmt: skip
    return Call(**plain | changes)


@pytest.mark.parametrize("window", [1, 2, 7, 99])
def test_a_sliding_rule_has_its_window(window: int) -> None:
    assert window_of(sliding(window), 100) == window


def test_a_causal_rule_and_one_as_wide_as_the_model_have_none() -> None:
    assert window_of(causal, 100) is None
    assert window_of(sliding(100), 100) is None


@pytest.mark.parametrize(
    "rule",
    [
        lambda b, h, q, k: (k <= q) & (k // 8 == q // 8),
        lambda b, h, q, k: (k <= q) | (k < 4),
        lambda b, h, q, k: (k <= q + 1) & (k > q - 9),
        lambda b, h, q, k: (k < q) & (k > q - 9),
        lambda b, h, q, k: k == k,
    ],
    ids=["chunks", "a prefix seen by all", "one ahead", "not itself", "both ways"],
)
def test_another_rule_is_refused(rule: Rule) -> None:
    with pytest.raises(UsageError) as caught:
        window_of(rule, 100)
    assert caught.value.code == "OST5207"


def test_layers_have_their_own_scales_and_windows() -> None:
    shape = shape_of([call(0), call(1, rule=sliding(5), scale=None)], layers=2, max_positions=64)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 8)
    assert shape.scales == (0.5, 8**-0.5)
    assert shape.windows == (None, 5)


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([], "it has 2 layers"),
        ([call(0)], "it has 2 layers"),
        ([call(0), call(0)], r"are \[0, 0\]"),
        ([call(None), call(1)], r"are \[None, 1\]"),
        ([call(0), call(1, rule=None)], "layer 1 brings a mask"),
        ([call(0), call(1, is_causal=False)], "come later"),
        ([call(0), call(1, more={"softcap": 50.0, "use_cache": False})], "asks for softcap,"),
        ([call(0), call(1, v=(1, 2, 2, 4))], "of the shapes"),
        ([call(0), call(1, k=(1, 3, 2, 8), v=(1, 3, 2, 8))], "of the shapes"),
        ([call(0), call(1, k=(1, 1, 2, 8), v=(1, 1, 2, 8))], "layers differ"),
    ],
)
def test_calls_that_no_backend_can_answer_are_refused(calls: list[Call], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        shape_of(calls, layers=2, max_positions=64)
    assert caught.value.code == "OST5207"


def test_what_has_no_effect_does_not_count() -> None:
    more = {"position_ids": torch.zeros(1), "softcap": None, "sliding_window": 9}
    assert shape_of([call(more=more)], layers=1, max_positions=64).windows == (None,)


def test_rope_types_are_found_in_every_spelling_and_per_kind_of_layer() -> None:
    config = {
        "model_type": "x",
        "rope_scaling": {"type": "linear"},
        "rope_parameters": {"full": {"rope_type": "yarn"}, "near": {"rope_type": "default"}},
    }
    assert set(rope_types(config)) == {"linear", "yarn", "default"}
