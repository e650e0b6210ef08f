"""Bound rows on every device: told before each step what may come, they draw only that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from llm.bound_rows import CPU, Bound, BoundHost, NoiseDecoder
from ostinato.llm.params import SamplingParams
from ostinato.llm.sampling_state import words_for

VOCABULARY = 211
END = 9


class Counting:
    """Lets the n-th token be one whose id leaves the remainder n when divided by 7, ten times."""

    def __init__(self) -> None:
        self.tokens = 0

    @property
    def is_finished(self) -> bool:
        return self.tokens == 10

    def allowed_words(self) -> Tensor:
        packed = [0] * words_for(VOCABULARY)
        for token in range(self.tokens % 7, VOCABULARY, 7):
            packed[token // 32] |= 1 << token % 32
        return torch.tensor(packed).to(torch.int32)

    def accept(self, token_ids: Sequence[int]) -> None:
        self.tokens += len(token_ids)


def rows(kind: dict[str, Any]) -> list[Bound]:
    params = SamplingParams(max_tokens=30, schema={}, **kind)
    free = SamplingParams(max_tokens=30, **kind)
    return [
        Bound((5 + row,), *((params, Counting()) if row % 2 else (free, None)), row)
        for row in range(6)
    ]


@pytest.mark.parametrize("kind", [{}, {"temperature": 0}, {"top_p": 0.8, "min_tokens": 20}])
def test_bound_rows_draw_only_what_they_were_told(
    kind: dict[str, Any], backend_name: str, device: torch.device
) -> None:
    host = BoundHost(
        NoiseDecoder(VOCABULARY),
        VOCABULARY,
        rows=6,
        stop_ids=(END,),
        device=device,
        backend=backend_name,
    )
    asked = rows(kind)
    host.run(*asked)
    for bound in asked[1::2]:
        assert [token % 7 for token in bound.tokens] == [n % 7 for n in range(10)]
    assert {bound.most_at_once for bound in asked[::2]} == {8}
    assert host.resident.report().reasons == {}
    if kind.get("temperature") == 0:
        on_cpu = rows(kind)
        host = BoundHost(NoiseDecoder(VOCABULARY), VOCABULARY, rows=6, stop_ids=(END,), device=CPU)
        host.run(*on_cpu)
        assert [bound.tokens for bound in asked] == [bound.tokens for bound in on_cpu]
