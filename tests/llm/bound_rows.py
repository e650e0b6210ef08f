"""Rows with grammars and rows without, over random logits or a real model, run as engines do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor, nn

from llm.resident_rows import SumAttention, by_row
from ostinato.llm.attention import AttentionBackend, PromptChunk, choose
from ostinato.llm.kv.store import KvStore
from ostinato.llm.params import SamplingParams
from ostinato.llm.prefill import Prefiller
from ostinato.llm.reply import Grammar as GrammarLike
from ostinato.llm.resident import Resident
from ostinato.llm.structured import Compiled

CPU = torch.device("cpu")
PAGE_TOKENS = 16
END = 256


def byte_tokenizer() -> tokenizers.Tokenizer:
    """One token per byte, an end, and a few tokens of several letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("t", "r"), ("u", "e"), ("tr", "ue"), ('"', ":")]
    words = {letter: at for at, letter in enumerate(alphabet)} | {"<end>": END}
    for first, second in pairs:
        words[first + second] = len(words)
    tokenizer = tokenizers.Tokenizer(models.BPE(words, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


class NoiseDecoder(nn.Module):
    """Random logits that depend on the last token and its place."""

    table_NV: Tensor

    def __init__(self, vocabulary: int, *, spread: float = 2.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        table = torch.randn(61, vocabulary, generator=generator) * spread
        self.register_buffer("table_NV", table)

    def decode(self, tokens_B: Tensor, positions_B: Tensor, slots_B: Tensor, attend: Any) -> Tensor:
        return (tokens_B * 31 + positions_B * 17)[:, None]

    def logits(self, hidden_BE: Tensor) -> Tensor:
        return self.table_NV.index_select(0, hidden_BE[:, 0] % len(self.table_NV))


@dataclass
class Bound:
    """One row's request and what came of it."""

    ids: tuple[int, ...]
    params: SamplingParams
    grammar: GrammarLike | None = None
    seed: int = 0
    tokens: list[int] = field(default_factory=list)
    most_at_once: int = 0
    finish: str | None = None


class BoundHost:
    """Seats requests, tells grammars' rows what may come, and reads what launches give."""

    def __init__(
        self,
        decoder: Any,
        vocabulary: int,
        *,
        rows: int,
        stop_ids: Sequence[int],
        device: torch.device = CPU,
        **options: Any,
    ) -> None:
        decoder = decoder.to(device)
        config = getattr(decoder, "config", None)
        attention: AttentionBackend = SumAttention()
        layers, heads, dim = 1, 1, 1
        if config is not None:
            attention, _ = choose(config.attention, device=device, dtype=torch.float32)
            layers, heads, dim = config.layers, config.kv_heads, config.head_dim
        self._pages = options.pop("max_pages", 40)
        self.store = KvStore(
            layers, rows * self._pages + 1, PAGE_TOKENS, heads, dim, torch.float32, device
        )
        self.resident = Resident(
            decoder,
            attention,
            self.store,
            vocabulary=vocabulary,
            max_batch=rows,
            max_pages=self._pages,
            ring=options.pop("ring", 8),
            **options,
        )
        self._prefiller = None
        if config is not None:
            self._prefiller = Prefiller(decoder, attention, self.store, max_pages=self._pages)
        self._stop_ids = tuple(stop_ids)
        self.seated: dict[int, Bound] = {}

    def seat(self, row: int, bound: Bound) -> None:
        pages = range(1 + row * self._pages, 1 + (row + 1) * self._pages)
        if self._prefiller is not None and len(bound.ids) > 1:
            with torch.inference_mode():
                self._prefiller.run([PromptChunk(bound.ids[:-1], 0, pages)])
        self.resident.join(
            row,
            bound.ids,
            bound.params,
            prompt_tokens=len(bound.ids),
            stop_ids=self._stop_ids,
            seed=bound.seed,
            left=bound.params.max_tokens,
        )
        self.resident.set_pages(row, pages)
        self.seated[row] = bound

    def launch(self, steps: int = 8) -> None:
        """Take every row further, and let those that are over get up."""
        for row, bound in self.seated.items():
            if bound.grammar is not None:
                self.resident.set_allowed(row, bound.grammar.allowed_words())
        for row, gave in by_row(self.resident.launch(steps).wait()).items():
            bound = self.seated[row]
            bound.tokens += gave.tokens
            bound.most_at_once = max(bound.most_at_once, len(gave.tokens))
            bound.finish = None if gave.finish is None else gave.finish.value
            if bound.grammar is not None:
                bound.grammar.accept(gave.tokens)
                if bound.grammar.is_finished:
                    bound.finish = "stop"
            if bound.finish is not None:
                self.resident.leave(row)
                del self.seated[row]

    def run(self, *bounds: Bound, steps: int = 8) -> None:
        """Seat one request in each row, and launch until all are over."""
        for row, bound in enumerate(bounds):
            self.seat(row, bound)
        for _ in range(2000):
            if not self.seated:
                return
            self.launch(steps)
        raise AssertionError("some row never ended")


def answers(
    decoder: Any,
    vocabulary: int,
    compiled: Compiled,
    params: SamplingParams,
    seeds: Sequence[int],
    prompt: Sequence[int] = (5,),
) -> list[Bound]:
    """One greedy answer, and one for each seed."""
    host = BoundHost(decoder, vocabulary, rows=len(seeds) + 1, stop_ids=compiled.stop_ids)
    greedy = replace(params, temperature=0.0)
    asked = [Bound(tuple(prompt), greedy, compiled.start())]
    asked += [Bound(tuple(prompt), params, compiled.start(), seed) for seed in seeds]
    host.run(*asked)
    return asked
