"""The keywords of a forward are read off its signature, so that no version is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.hf.forward import read_forward


class Older(nn.Module):
    """As transformers 5.17 calls its arguments."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        cache_position: Any = None,
        **kwargs: Any,
    ) -> Any:
        self.seen = {"past_key_values": past_key_values, "cache_position": cache_position, **kwargs}
        return SimpleNamespace(logits=input_ids[..., None].float())


class Newer(nn.Module):
    """As newer ones do, which take the older name and warn of it."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        cache: Any = None,
        logits_to_keep: Any = 0,
        **kwargs: Any,
    ) -> Any:
        assert past_key_values is None
        self.seen = {"cache": cache, "logits_to_keep": logits_to_keep, **kwargs}
        return SimpleNamespace(logits=input_ids[..., None].float())


def called(model: Any, keep: Tensor | None = None) -> tuple[dict[str, Any], Tensor]:
    call = read_forward(model)
    assert call is not None
    columns = torch.arange(3)
    logits = call(
        model, torch.tensor([[5, 6, 7]]), mask=None, positions=columns[None], cache="the cache",
        columns=columns, keep=keep,
    )  # fmt: skip
    return model.seen, logits


def test_an_older_forward_gets_the_older_names_and_its_columns() -> None:
    seen, logits = called(Older(), keep=torch.tensor([1]))
    assert seen["past_key_values"] == "the cache"
    assert seen["cache_position"].tolist() == [0, 1, 2]
    assert "cache" not in seen
    assert "logits_to_keep" not in seen
    assert logits.tolist() == [[[6.0]]]  # cut here, where the forward cannot


def test_a_newer_forward_gets_the_newer_names_and_nothing_it_dropped() -> None:
    seen, _ = called(Newer(), keep=torch.tensor([1]))
    assert seen["cache"] == "the cache"
    assert seen["logits_to_keep"].tolist() == [1]
    assert "cache_position" not in seen


def test_a_forward_without_positions_or_cache_is_none_of_ours() -> None:
    class Bare(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return input_ids

    assert read_forward(Bare()) is None


def test_the_installed_version_is_one_of_both(kind: str, tiny: Callable[..., Any]) -> None:
    model = tiny(kind)
    call = read_forward(model)
    assert call is not None
    assert call.cache_name in inspect.signature(model.forward).parameters
