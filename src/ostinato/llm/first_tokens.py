"""First tokens that come of the prefill itself, where that saves a decode step.

A request is prefilled up to its last token, which is the first input of its first decode step.
Where others decode in that step anyway, it rides along and costs nothing. Where nobody does, the
step would read all weights for its sake alone; then the last token is prefilled too, and what the
prefill computed for it gives the first token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ostinato.llm.sampling import Level, level_of
from ostinato.llm.scheduler import Chunk
from ostinato.llm.sending import bring

if TYPE_CHECKING:
    from torch import Tensor

    from ostinato.llm.books import Books
    from ostinato.llm.resident import Launch, Resident
    from ostinato.llm.scheduler import Plan


def comes_of_prefill(plan: Plan, books: Books) -> bool:
    """Return whether the plan's prefill is to bring the first tokens of all who decode."""
    ends = [chunk.request_id for chunk in plan.prefill if chunk.is_last]
    if not ends or set(plan.decode) != set(ends):
        return False
    # What changes logits looks at the history, and a grammar tells of each token.
    params = (books.reply(request_id).request.params for request_id in ends)
    return all(level_of(each) is not Level.FULL and each.logprobs is None for each in params)


def with_last_tokens(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks, those longer by one that are the last of their request."""
    return [
        Chunk(each.request_id, each.start, each.count + 1, is_last=True) if each.is_last else each
        for each in chunks
    ]


def begin(resident: Resident, rows: Mapping[str, int], plan: Plan, hidden_SE: Tensor) -> Launch:
    """Give those their first token whose last chunk was prefilled.

    Args:
        rows: Where they sit.
        hidden_SE: Of the last token of each chunk of the plan.
    """
    places = [place for place, chunk in enumerate(plan.prefill) if chunk.is_last]
    if len(places) < len(plan.prefill):
        hidden_SE = hidden_SE.index_select(0, bring(torch.tensor(places), hidden_SE.device))
    return resident.begin([rows[plan.prefill[place].request_id] for place in places], hidden_SE)
