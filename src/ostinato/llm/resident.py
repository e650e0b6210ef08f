"""The decode loop that lives on the device: rows join and leave, launches run K steps of all.

The host never stands between two tokens. A launch queues up to K replays of one recorded step and
one copy of the ring to the host, and returns; the host reads the launch before it meanwhile.

A recording is keyed by the bucket of rows, the bucket of pages, what the rows ask of sampling
(`Level`) and whether any wants log probabilities; by nothing else. Positions, lengths, page tables,
parameters and random numbers are read on the device.

On a GPU all K replays are queued, and those after the last row has finished do nothing but read the
weights: looking whether all are done would cost a wait. On a CPU a replay is over when the call
returns, so looking is free, and a launch ends as soon as every row has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ostinato.errors import InternalError
from ostinato.graphs import Decision, Report, graphed
from ostinato.graphs.options import BackendName
from ostinato.llm.attention.base import AttentionBackend
from ostinato.llm.kv.store import KvStore
from ostinato.llm.params import SamplingParams
from ostinato.llm.resident_launch import Launch, Produced, TokenLogprobs
from ostinato.llm.resident_state import Ending, ResidentState
from ostinato.llm.resident_step import ResidentStep, advance
from ostinato.llm.sampling import Level, level_of
from ostinato.llm.sampling_state import send

if TYPE_CHECKING:
    from ostinato.llm.models.decoder import Decoder

__all__ = ["Launch", "Level", "Produced", "Resident", "TokenLogprobs"]


@dataclass(slots=True)
class _Seat:
    """What the host knows of a row without asking the device.

    Attributes:
        cached: Tokens whose keys and values are stored, if the row ran all steps queued so far.
        most: Tokens whose keys and values it can ever need.
        pages: Pages granted.
        logprobs: Likeliest tokens it wants reported; None for no report.
    """

    cached: int
    most: int
    level: Level
    logprobs: int | None
    pages: int = 0

    def needs(self, steps: int) -> int:
        """Tokens that must have a place in pages for `steps` more steps."""
        return min(self.cached + steps, self.most)


class Resident:
    """The rows of one engine.

    All calls belong on one stream and one thread. None waits for the device but `Launch.wait`.

    Args:
        decoder: An `ostinato.llm.models` decoder.
        vocabulary: Its tokens.
        max_batch: Rows.
        max_pages: Pages that one row may need.
        ring: The most steps of one launch.
        most_logprobs: Likeliest tokens that a row may ask for beside each token; 0: no reports.
        levels: What recordings compute. (Level.FULL,) makes one recording serve all requests, at
            the price of some sixty kernels more in every step of greedy rows.
        budget: Bytes that the recordings may keep.
        backend: As in `graphed`.
    """

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionBackend,
        store: KvStore,
        *,
        vocabulary: int,
        max_batch: int,
        max_pages: int,
        ring: int,
        most_logprobs: int = 0,
        levels: Sequence[Level] = tuple(Level),
        budget: int | str = "8GiB",
        backend: BackendName = "auto",
    ) -> None:
        self._page_tokens, self._ring, self._most_logprobs = store.page_tokens, ring, most_logprobs
        self._levels = tuple(sorted({*levels, Level.FULL}))
        self._narrows = attention.cost_follows_table
        device = store.keys.device
        self.state = ResidentState.empty(
            max_batch,
            vocabulary=vocabulary,
            pages=max_pages,
            page_tokens=store.page_tokens,
            ring=ring,
            most_logprobs=most_logprobs,
            device=device,
        )
        self.step = ResidentStep(decoder, attention, store, self.state, most_logprobs)
        # Results stay in the state: there is nothing to hand out. A step always comes again.
        self._runner = graphed(
            self.step,
            admit_after=1,
            warmups=1,
            budget=budget,
            outputs="leased",
            backend=backend,
        )
        self._seats: dict[int, _Seat] = {}
        self._pages = torch.zeros(max_batch, max_pages, dtype=torch.int32)
        self._moved: set[int] = set()
        self._endings = self.state.ending.numpy() if device.type == "cpu" else None

    def join(
        self,
        row: int,
        ids: Sequence[int],
        params: SamplingParams,
        *,
        prompt_tokens: int,
        stop_ids: Sequence[int],
        seed: int,
        left: int,
    ) -> None:
        """Seat a request in an empty row.

        Either the keys and values of all tokens but the last are cached: then `launch` goes on from
        here. Or all are: then `begin` gives the first token from the prefill's logits.

        Args:
            ids: The prompt, and what the request produced before it was preempted.
            prompt_tokens: How many of them are the prompt.
            stop_ids: Ids that end the row: the model's own, unless ignored, and the request's.
            seed: Of its draws. With the same seed, a preempted request goes on as if it had not
                been.
            left: Tokens that it may still produce, at least 1.

        Raises:
            UsageError: OST5020, OST5021, stop ids or biases that do not fit.
            InternalError: OST5131, the row is taken or the request cannot fit.
        """
        reported = params.logprobs
        self._insist(0 <= row < len(self._pages) and row not in self._seats, f"row {row} is taken")
        self._insist(bool(ids) and left >= 1, f"{len(ids)} tokens known, {left} left to produce")
        self._insist(
            (reported or 0) <= self._most_logprobs,
            f"{reported} log probabilities asked for, the ring holds {self._most_logprobs}",
        )
        most = len(ids) + left - 1
        room = self._pages.shape[1] * self._page_tokens
        self._insist(most <= room, f"{most} tokens to cache, a row holds {room}")
        with torch.inference_mode():
            self.state.sampling.join(
                row, ids, params, prompt_tokens=prompt_tokens, stop_ids=stop_ids, seed=seed
            )
            self.state.seat(row, ids, left)
        self._seats[row] = _Seat(len(ids) - 1, most, level_of(params), reported)

    def leave(self, row: int) -> None:
        """Empty a row, finished or not; steps queued already still run with it."""
        self._insist(self._seats.pop(row, None) is not None, f"row {row} is empty")
        with torch.inference_mode():
            self.state.vacate(row)

    def set_pages(self, row: int, pages: Sequence[int]) -> None:
        """Set the pages of a row, from position 0 on; sent with the next launch."""
        self._insist(row in self._seats, f"row {row} is empty")
        self._pages[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        self._seats[row].pages = len(pages)
        self._moved.add(row)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows that are taken."""
        return tuple(sorted(self._seats))

    def begin(self, rows: Sequence[int], logits_SV: Tensor) -> Launch:
        """Give the rows their next token from logits that a prefill computed.

        Args:
            rows: Rows whose tokens are all cached, in the order of the logits.
        """
        self._insist(set(rows) <= self._seats.keys(), f"rows {list(rows)} are not all taken")
        seats = [self._seats[row] for row in rows]
        with torch.inference_mode():
            index = torch.tensor(rows)
            if logits_SV.is_cuda:
                index = index.pin_memory().to(logits_SV.device, non_blocking=True)
            picked = self.state.pick(index)
            picked.count.zero_()
            level = self._level(seats)
            advance(picked, logits_SV, level, self._reported(seats))
            self.state.put(index, picked)
            for seat in seats:
                seat.cached += 1
            return Launch(picked, dict(enumerate(rows)), self._asked(rows), steps=1)

    def launch(self, steps: int, *, interrupt: Callable[[], bool] | None = None) -> Launch:
        """Queue up to `steps` steps of all rows; return at once with a handle on what they give.

        Args:
            steps: The pages that they need must have been set.
            interrupt: Asked between two steps: whether someone waits, so that the launch ends here.

        Raises:
            InternalError: OST5131, no row is taken, more steps than the ring holds, or too few
                pages.
        """
        self._insist(bool(self._seats), "a launch without rows")
        self._insist(1 <= steps <= self._ring, f"{steps} steps, the ring holds {self._ring}")
        seats = self._seats.values()
        bucket = self._bucket_for(steps)
        with torch.inference_mode():
            self._send_pages()
            state = self.state.first(bucket.rows, bucket.pages, self._page_tokens)
            state.count.zero_()
            queued = 0
            while queued < steps and not (queued and self._ends_here(interrupt)):
                self._runner(*bucket.key)
                queued += 1
            for seat in seats:
                seat.cached = min(seat.cached + queued, seat.most)
            rows = self.rows
            return Launch(state, dict(zip(rows, rows, strict=True)), self._asked(rows), queued)

    def warm(
        self,
        rows: int,
        pages: int,
        level: Level = Level.GREEDY,
        *,
        with_logprobs: bool = False,
    ) -> Decision:
        """Record the step that serves `rows` rows of `pages` pages, ahead of a launch."""
        bucket = self._bucket(rows, pages, level, with_logprobs=with_logprobs)
        with torch.inference_mode():
            return self._runner.warm(*bucket.key)

    def report(self) -> Report:
        """Return what happened to the recordings so far."""
        return self._runner.report()

    def close(self) -> None:
        """Give the recordings back."""
        self._runner.close()

    def _bucket_for(self, steps: int) -> _Bucket:
        pages = 1
        for row, seat in self._seats.items():
            needed = -(-seat.needs(steps) // self._page_tokens)
            self._insist(
                needed <= seat.pages,
                f"row {row} needs {needed} pages for {steps} steps and has {seat.pages}",
            )
            pages = max(pages, needed)
        seats = list(self._seats.values())
        return self._bucket(
            max(self._seats) + 1,
            pages,
            self._level(seats),
            with_logprobs=self._reported(seats) is not None,
        )

    def _bucket(self, rows: int, pages: int, level: Level, *, with_logprobs: bool) -> _Bucket:
        most_rows, most_pages = self._pages.shape
        # Penalties look at the tokens known, so their cost follows the pages too.
        narrows = self._narrows or level is Level.FULL
        return _Bucket(
            _power_of_two(rows, most_rows),
            _power_of_two(pages, most_pages) if narrows else most_pages,
            level,
            with_logprobs,
        )

    def _level(self, seats: Sequence[_Seat]) -> Level:
        needed = max(seat.level for seat in seats)
        return next(level for level in self._levels if level >= needed)

    def _reported(self, seats: Sequence[_Seat]) -> int | None:
        asks = any(seat.logprobs is not None for seat in seats)
        return self._most_logprobs if asks else None

    def _asked(self, rows: Sequence[int]) -> dict[int, int]:
        wanted = {row: self._seats[row].logprobs for row in rows}
        return {row: most for row, most in wanted.items() if most is not None}

    def _send_pages(self) -> None:
        """Bring the device's page table up to date, in one copy however many rows changed."""
        if self._moved:
            rows = slice(min(self._moved), max(self._moved) + 1)
            wide = max(seat.pages for seat in self._seats.values())
            send(self.state.pages_BP[rows, :wide], self._pages[rows, :wide].contiguous())
            self._moved.clear()

    def _ends_here(self, interrupt: Callable[[], bool] | None) -> bool:
        if self._endings is not None and not self._runs_any():
            return True
        return interrupt is not None and interrupt()

    def _runs_any(self) -> bool:
        assert self._endings is not None
        return any(self._endings[row] == Ending.RUNNING for row in self._seats)

    def _insist(self, holds: bool, problem: str) -> None:
        if not holds:
            raise InternalError(
                f"the decode loop was asked for what it cannot do: {problem}",
                code="OST5131",
                remedy="report it with the text of the error",
            )


@dataclass(frozen=True, slots=True)
class _Bucket:
    """What a recording is keyed by."""

    rows: int
    pages: int
    level: Level
    with_logprobs: bool

    @property
    def key(self) -> tuple[int, int, Level, bool]:
        return self.rows, self.pages, self.level, self.with_logprobs


def _power_of_two(wanted: int, most: int) -> int:
    return min(1 << (wanted - 1).bit_length(), most)
