"""Greedy decoding as people write it without us: transformers' static cache and one captured step.

Two ways: a graph captured by hand whose state stays in place, so that a token costs one replay;
and `torch.cuda.make_graphed_callables`, which copies its inputs in at each call. Batch 1, without
padding or end of sequence; the host waits for the device only at the end of an answer.

Shapes: P tokens of a prompt, L columns of the cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

_WARMUPS = 3

Step = Callable[[], None]
Advance = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class _Static:
    """A model with a static cache of `length` columns; keywords as this transformers has them."""

    def __init__(self, model: Any, length: int) -> None:
        from transformers import StaticCache

        self.model, self.device = model, model.device
        names = inspect.signature(model.forward).parameters
        self.cache = StaticCache(config=model.config, max_cache_len=length)
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._takes_columns = "cache_position" in names

    def next_token(self, ids_1P: Tensor, positions_1P: Tensor) -> Tensor:
        """Run the ids, cache them, and return what follows, (1, 1)."""
        keywords: dict[str, Any] = {self._cache_name: self.cache, "use_cache": True}
        if self._takes_columns:
            keywords["cache_position"] = positions_1P[0]
        output = self.model(input_ids=ids_1P, position_ids=positions_1P, **keywords)
        token: Tensor = output.logits[:, -1].argmax(-1, keepdim=True)
        return token

    def begin(self, prompt: Tensor) -> Tensor:
        """Forget the answer before, run a prompt, and return the first token."""
        self.cache.reset()
        positions = torch.arange(prompt.shape[1], device=self.device)[None]
        return self.next_token(prompt, positions)


def capture(step: Step) -> Step:
    """Return the replay of `step`, captured as the guide of torch.cuda.graph shows."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARMUPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class RawGraph:
    """One decode step with its state in place, captured at the first answer.

    Args:
        model: A causal model of transformers.
        length: Columns of the cache; every answer, prompt included, must fit.
        capture: Makes the replay of a step.
    """

    def __init__(self, model: Any, length: int, capture: Callable[[Step], Step] = capture) -> None:
        self._static, self._capture = _Static(model, length), capture
        whole = {"dtype": torch.long, "device": self._static.device}
        self._token, self._position = torch.zeros(1, 1, **whole), torch.zeros(1, 1, **whole)
        self._tokens_1L = torch.zeros(1, length, **whole)
        self._replay: Step | None = None

    def _step(self) -> None:
        token = self._static.next_token(self._token, self._position)
        self._token.copy_(token)
        self._position.add_(1)
        self._tokens_1L.index_copy_(1, self._position[0], token)

    @torch.inference_mode()
    def generate(self, prompt: Tensor, *, max_new_tokens: int, **options: Any) -> Tensor:
        """Return the prompt with `max_new_tokens` greedy ones behind it.

        `options` are for the other ways.
        """
        columns = prompt.shape[1]
        if self._replay is None:
            self._begin(prompt)  # the cache makes its tensors at the first run
            self._replay = self._capture(self._step)
        self._begin(prompt)
        for _ in range(max_new_tokens - 1):
            self._replay()
        return self._tokens_1L[:, : columns + max_new_tokens].clone()

    def _begin(self, prompt: Tensor) -> None:
        columns = prompt.shape[1]
        self._tokens_1L[:, :columns].copy_(prompt)
        self._token.copy_(self._static.begin(prompt))
        self._tokens_1L[:, columns : columns + 1].copy_(self._token)
        self._position.fill_(columns)


def graphed_callable(advance: Advance, sample: tuple[Tensor, Tensor]) -> Advance:
    """Return `advance` as torch graphs it."""
    made: Any = torch.cuda.make_graphed_callables(advance, sample)
    return cast("Advance", made)


class GraphedCallable:
    """One decode step from token and position to the next ones, graphed at the first answer.

    Args:
        model: A causal model of transformers.
        length: Columns of the cache; every answer, prompt included, must fit.
        wrap: Makes the graphed callable.
    """

    def __init__(
        self,
        model: Any,
        length: int,
        wrap: Callable[[Advance, tuple[Tensor, Tensor]], Advance] = graphed_callable,
    ) -> None:
        self._static, self._wrap = _Static(model, length), wrap
        self._advance: Advance | None = None

    @torch.inference_mode()
    def generate(self, prompt: Tensor, *, max_new_tokens: int, **options: Any) -> Tensor:
        """Return the prompt with `max_new_tokens` greedy ones behind it.

        `options` are for the other ways.
        """
        position = torch.full((1, 1), prompt.shape[1], device=self._static.device)
        if self._advance is None:
            token = self._static.begin(prompt)
            self._advance = self._wrap(self._step, (token.clone(), position.clone()))
        tokens = [self._static.begin(prompt)]
        for _ in range(max_new_tokens - 1):
            token, position = self._advance(tokens[-1], position)
            tokens.append(token.clone())  # the next call overwrites it
        return torch.cat((prompt, *tokens), dim=1)

    def _step(self, token: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        return self._static.next_token(token, position), position + 1
