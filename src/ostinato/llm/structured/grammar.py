"""A grammar on its way through one answer: before each token it says which ones may come.

Shapes: X words of 32 bits that hold one bit per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ostinato.errors import UsageError
from ostinato.llm.structured.problems import nothing_allowed, refusing

if TYPE_CHECKING:
    from llguidance import LLMatcher

_BITS = 32


class Grammar:
    """Where the tokens accepted so far have led; for one answer and one thread at a time.

    Args:
        matcher: Its own.
        vocabulary: The model's tokens; those beyond are never allowed.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int, tokens: int = 0) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._tokens = tokens

    def allowed_words(self) -> Tensor:
        """Return which tokens may come next, (X,) int32: token t is bit t % 32 of word t // 32.

        The model's ends are among them exactly where the answer is complete.

        Raises:
            UsageError: OST5064, there are none, or to find them takes too much work.
        """
        with refusing(self._stuck):
            words = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)
        self._check_error()
        words = words[: -(-self._vocabulary // _BITS)].copy()
        beyond = -self._vocabulary % _BITS
        if beyond:
            words[-1:].view(np.uint32)[:] &= np.uint32(0xFFFFFFFF >> beyond)
        if not words.any():
            raise nothing_allowed(self._tokens, "")
        return torch.from_numpy(words)

    def accept(self, token_ids: Sequence[int]) -> None:
        """Move on by tokens that were drawn.

        Raises:
            UsageError: OST5064, one of them was not allowed, or to follow takes too much work.
        """
        with refusing(self._stuck):
            self._matcher.consume_tokens(list(token_ids))
        self._check_error()
        self._tokens += len(token_ids)

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete and nothing but the model's end may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def is_complete(self) -> bool:
        """Whether the answer could end here."""
        return self._matcher.is_accepting()

    def copy(self) -> Grammar:
        """Return another that stands at the same place, and goes its own way."""
        return Grammar(self._matcher.deep_copy(), self._vocabulary, self._tokens)

    def _check_error(self) -> None:
        if self._matcher.is_error():
            raise self._stuck(self._matcher.get_error())

    def _stuck(self, problem: str) -> UsageError:
        return nothing_allowed(self._tokens, problem)
