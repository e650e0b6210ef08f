"""A decoder so small that its answers can be said without it, and a host that seats requests.

Keys hold nothing; the value of a token is its id. Attention sums the ids of all tokens cached, each
weighed by its place, so one wrong page, length or slot changes the sum. The sum and the last token
choose a line of a table of logits. All of it is exact in f32, so it is the same in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from llm.sampling_rows import rows_of
from ostinato.llm.kv.store import KvStore
from ostinato.llm.params import SamplingParams
from ostinato.llm.request import FinishReason
from ostinato.llm.resident import Launch, Produced, Resident, TokenLogprobs
from ostinato.llm.sampling import Level, sample

VOCABULARY = 211
PAGE_TOKENS = 4
PAGES = 200


class TableDecoder(nn.Module):
    """Looks its logits up."""

    table_VV: Tensor

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        table = torch.randn(VOCABULARY, VOCABULARY, generator=generator) * 2
        self.register_buffer("table_VV", table.to(device))

    def decode(self, tokens_B: Tensor, positions_B: Tensor, slots_B: Tensor, attend: Any) -> Tensor:
        value_B11 = tokens_B.float()[:, None, None]
        summed: Tensor = attend(0, value_B11, torch.zeros_like(value_B11), value_B11, slots_B)
        return summed[:, 0] * 7 + tokens_B[:, None]

    def logits(self, hidden_BE: Tensor) -> Tensor:
        return self.table_VV.index_select(0, (hidden_BE[:, 0] % VOCABULARY).long())


@dataclass(frozen=True)
class SumAttention:
    """Sums the cached values, weighed by place."""

    name: str = "sum"
    cost_follows_table: bool = True
    captures_prefill: bool = False

    def decode(
        self, layer: int, q_BHD: Tensor, store: KvStore, pages_BP: Tensor, lengths_B: Tensor
    ) -> Tensor:
        place_W = torch.arange(pages_BP.shape[1] * PAGE_TOKENS, device=pages_BP.device)
        cached_BW = store.values[layer].flatten()[
            (pages_BP.repeat_interleave(PAGE_TOKENS, dim=1) * PAGE_TOKENS + place_W % PAGE_TOKENS)
        ]
        weight_BW = (place_W % 5 + 1) * (place_W < lengths_B[:, None])
        return (cached_BW * weight_BW).sum(dim=1)[:, None, None]

    def prefill(self, *_: object) -> Tensor:
        raise AssertionError("these tests write prompts by hand")


def hidden_after(ids: Sequence[int]) -> Tensor:
    """The hidden state that follows `ids`, without pages or rows."""
    summed = sum(token * (place % 5 + 1) for place, token in enumerate(ids))
    return torch.tensor([float(summed * 7 + ids[-1])])


def logits_after(decoder: TableDecoder, ids: Sequence[int]) -> Tensor:
    """The logits that follow `ids`."""
    return decoder.table_VV[int(hidden_after(ids)) % VOCABULARY]


@dataclass(frozen=True)
class Asked:
    """A request, as these tests make them."""

    ids: tuple[int, ...]
    params: SamplingParams
    stop_ids: tuple[int, ...] = ()
    seed: int = 0
    produced: int = 0


def ideal(decoder: TableDecoder, asked: Asked) -> tuple[list[int], str]:
    """Tokens and ending of a request that runs by itself, one sample at a time."""
    ids = list(asked.ids)
    prompt = len(ids) - asked.produced
    while True:
        logits = logits_after(decoder, ids)[None].cpu()
        state = rows_of(
            asked.params,
            vocabulary=VOCABULARY,
            ids=[ids],
            prompt_tokens=[prompt],
            stop_ids=asked.stop_ids,
            seeds=[asked.seed],
            tokens=200,
        )
        sampled = sample(logits, state, torch.tensor([len(ids)]), Level.FULL)
        if sampled.is_broken_B.item():
            return ids[len(asked.ids) :], "error"
        ids.append(int(sampled.token_B))
        if ids[-1] in asked.stop_ids:
            return ids[len(asked.ids) :], "stop"
        if len(ids) - prompt == asked.params.max_tokens:
            return ids[len(asked.ids) :], "length"


@dataclass(frozen=True)
class Gave:
    """What one row gave in one launch."""

    tokens: tuple[int, ...]
    finish: FinishReason | None
    logprobs: tuple[TokenLogprobs, ...] | None


def by_row(produced: Produced) -> dict[int, Gave]:
    assert produced.finishes.keys() | produced.logprobs.keys() <= produced.tokens.keys()
    return {
        row: Gave(tokens, produced.finishes.get(row), produced.logprobs.get(row))
        for row, tokens in produced.tokens.items()
    }


class Host:
    """Seats requests, grants pages, and collects what launches give."""

    def __init__(self, device: torch.device, *, rows: int = 8, **options: Any) -> None:
        self.device = device
        self.decoder = TableDecoder(device)
        self.store = KvStore(1, PAGES, PAGE_TOKENS, 1, 1, torch.float32, device)
        self.resident = Resident(
            self.decoder,  # type: ignore[arg-type]
            options.pop("attention", SumAttention()),
            self.store,
            vocabulary=VOCABULARY,
            max_batch=rows,
            max_pages=options.pop("max_pages", 12),
            ring=options.pop("ring", 8),
            **options,
        )
        self._free = list(range(PAGES - 1, 0, -1))
        self._pages: dict[int, list[int]] = {}
        self.answers: dict[int, list[int]] = {}
        self.endings: dict[int, str] = {}
        self.produced: dict[int, list[Gave]] = {}

    def seat(self, row: int, asked: Asked) -> None:
        """Cache all tokens but the last, and join."""
        left = asked.params.max_tokens - asked.produced
        self.resident.join(
            row,
            asked.ids,
            asked.params,
            prompt_tokens=len(asked.ids) - asked.produced,
            stop_ids=asked.stop_ids,
            seed=asked.seed,
            left=left,
        )
        needed = -(-(len(asked.ids) + left) // PAGE_TOKENS)
        pages = [self._free.pop() for _ in range(needed)]
        self._pages[row] = pages
        self.resident.set_pages(row, pages)
        self.cache(row, asked.ids[:-1], start=0)
        self.answers[row], self.produced[row] = [], []
        self.endings.pop(row, None)

    def cache(self, row: int, ids: Sequence[int], start: int) -> None:
        pages = self._pages[row]
        for place, token in enumerate(ids, start):
            self.store.values[0, pages[place // PAGE_TOKENS], place % PAGE_TOKENS] = token

    def leave(self, row: int) -> None:
        self.resident.leave(row)
        self._free += self._pages.pop(row)

    def collect(self, launch: Launch) -> dict[int, Gave]:
        produced = by_row(launch.wait())
        for row, gave in produced.items():
            self.answers[row] += gave.tokens
            self.produced[row].append(gave)
            if gave.finish is not None:
                self.endings[row] = gave.finish.value
        return produced

    def run(self, steps: int = 8, launches: int = 40) -> None:
        """Launch until every row has ended."""
        for _ in range(launches):
            if all(row in self.endings for row in self.resident.rows):
                return
            self.collect(self.resident.launch(steps))
        raise AssertionError("some row never ended")

    def check(self, row: int, asked: Asked) -> None:
        assert (self.answers[row], self.endings[row]) == ideal(self.decoder, asked)
