"""The decode loop that lives on the device: rows join and leave, launches run K steps of all.

The host never stands between two tokens. A launch queues up to K runs of one recorded step and one
copy of the ring to the host, and returns; the host reads the launch before it meanwhile.

A recording is keyed by the bucket of rows, the bucket of pages, what the rows ask of sampling
(`Level`) and whether any wants log probabilities; by nothing else. Positions, lengths, page tables,
parameters and random numbers are read on the device.

A launch ends early when every row has ended or someone waits (`hurry`). On a GPU the device itself
looks, between two steps of the one graph that a launch is; where the driver cannot loop
(`why_queued`), all K replays are queued and those after the last row has ended do nothing but read
the weights. On a CPU the host looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ostinato.errors import InternalError
from ostinato.graphs import Bell, Decision, Report, graphed
from ostinato.graphs.options import BackendName
from ostinato.llm.attention.base import AttentionBackend
from ostinato.llm.kv.store import KvStore
from ostinato.llm.params import SamplingParams
from ostinato.llm.resident_bucket import Bucket, power_of_two
from ostinato.llm.resident_launch import Launch, Produced, TokenLogprobs
from ostinato.llm.resident_moves import Coming, Moves
from ostinato.llm.resident_seat import Counts, Seat, Seats, Wanted
from ostinato.llm.resident_state import ResidentState
from ostinato.llm.resident_step import ResidentStep
from ostinato.llm.sampling import Level, level_of
from ostinato.llm.sampling_fused import FUSED_LEVELS, FusedEnd, can_fuse
from ostinato.llm.sending import bring, send

if TYPE_CHECKING:
    from ostinato.llm.models.decoder import Decoder

__all__ = ["Launch", "Level", "Produced", "Resident", "TokenLogprobs"]


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
        levels: What recordings compute; None: what is worth a recording of its own.
        is_fused: Whether a step ends in kernels of its own; None: where they can be compiled.
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
        levels: Sequence[Level] | None = None,
        is_fused: bool | None = None,
        budget: int | str = "8GiB",
        backend: BackendName = "auto",
    ) -> None:
        self._page_tokens, self._ring, self._most_logprobs = store.page_tokens, ring, most_logprobs
        self._narrows = attention.cost_follows_table
        device = store.keys.device
        is_fused = can_fuse(device) if is_fused is None else is_fused
        if levels is None:
            levels = FUSED_LEVELS if is_fused else tuple(Level)
        self.levels = tuple(sorted({*levels, Level.FULL}))
        self.state = ResidentState.empty(
            max_batch,
            vocabulary=vocabulary,
            pages=max_pages,
            page_tokens=store.page_tokens,
            ring=ring,
            most_logprobs=most_logprobs,
            device=device,
        )
        fused = FusedEnd.of(decoder, device) if is_fused else None
        self.step = ResidentStep(decoder, attention, store, self.state, most_logprobs, fused)
        # A step always comes again. Steps follow each other on one stream, so they share memory. A
        # step that runs twice from the same state writes the same keys and values.
        self._runner = graphed(
            self.step,
            admit_after=1,
            warmups=1,
            budget=budget,
            backend=backend,
            scratch=(store.keys, store.values),
            memory="shared",
        )
        self._bell = Bell(device)
        self._loop = self._runner.loop(device, until=self.state.ending, bell=self._bell)
        self._moves = Moves(self.state, is_fused=is_fused)
        self._seats = Seats(max_batch, store.page_tokens)
        self._pages = np.zeros((max_batch, max_pages), dtype=np.int32)
        self._moved: set[int] = set()
        self._told: dict[int, Tensor] = {}

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
        """Seat a request in an empty row, from the next launch on.

        Either the keys and values of all tokens but the last are cached: then `launch` goes on from
        here. Or all are: then `begin` gives the first token from the prefill.

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
        is_free = 0 <= row < len(self._pages) and row not in self._seats
        if not is_free:
            raise _impossible(f"row {row} is taken")
        if not ids or left < 1:
            raise _impossible(f"{len(ids)} tokens known, {left} left to produce")
        if (reported or 0) > self._most_logprobs:
            holds = f"the ring holds {self._most_logprobs}"
            raise _impossible(f"{reported} log probabilities asked for, {holds}")
        most = len(ids) + left - 1
        room = self._pages.shape[1] * self._page_tokens
        if most > room:
            raise _impossible(f"{most} tokens to cache, a row holds {room}")
        arrival = self.state.sampling.arrival(
            row, ids, params, prompt_tokens=prompt_tokens, stop_ids=stop_ids, seed=seed
        )
        is_bound = params.schema is not None
        self._moves.come(Coming(arrival, left, is_bound))
        self._seats.take(row, Seat(len(ids) - 1, most, level_of(params), reported, is_bound))

    def leave(self, row: int) -> None:
        """Empty a row, finished or not; steps queued already still run with it."""
        self._require_taken(row)
        self._seats.leave(row)
        self._moves.leave(row)
        self._told.pop(row, None)

    def set_pages(self, row: int, pages: Sequence[int], start: int = 0) -> None:
        """Set the pages of a row; sent with the next launch.

        Args:
            start: How many of its first pages stay as they are.
        """
        self._require_taken(row)
        granted = start + len(pages)
        self._pages[row, start:granted] = pages
        self._seats.grant(row, granted)
        self._moved.add(row)

    def granted(self, row: int) -> int:
        """Return how many pages of a row have been set."""
        return int(self._seats.pages_B[row])

    def set_allowed(self, row: int, words_X: Tensor) -> None:
        """Say what may come next in a row with a grammar; the next launch gives it one token.

        Launches that this did not precede pass the row by.

        Args:
            words_X: int32, on the host; token t is bit t % 32 of word t // 32.
        """
        if not self._seats.is_bound(row):
            raise _impossible(f"row {row} has no grammar")
        self._told[row] = words_X

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows that are taken."""
        return tuple(self._seats.company.rows_R.tolist())

    def begin(self, rows: Sequence[int], hidden_SE: Tensor) -> Launch:
        """Give the rows their next token from what a prefill computed.

        Args:
            rows: Rows whose tokens are all cached, in the order of the hidden states.
            hidden_SE: Of the last token of each.
        """
        if not all(row in self._seats for row in rows):
            raise _impossible(f"rows {list(rows)} are not all taken")
        if any(self._seats.is_bound(row) for row in rows):
            raise _impossible("a grammar needs a launch")
        asked_level, reports = self._seats.ask(rows)
        level = self.level_for([asked_level])
        rows_R, share_B = np.array(rows), np.zeros_like(self._seats.cached_B)
        share_B[rows_R] = 1
        with torch.inference_mode():
            self._moves.send()
            most_logprobs = self._most_logprobs if reports else None
            picked = self._give(rows, hidden_SE, level, most_logprobs)
            asked, at_R = self._seats.company.asked, np.arange(len(rows))
            given = self._seats.give(share_B)
            return Launch(picked.output_BF, picked.logprobs, rows_R, at_R, asked, given)

    def warm_begin(self, hidden_SE: Tensor, level: Level) -> None:
        """Compile and load what `begin` runs for so many rows, while none is taken."""
        if len(self._seats):
            raise _impossible("rows that are taken, to warm first tokens")
        with torch.inference_mode():
            self._give(range(len(hidden_SE)), hidden_SE, self.level_for([level]), None)

    def _give(
        self, rows: Sequence[int], hidden_SE: Tensor, level: Level, most_logprobs: int | None
    ) -> ResidentState:
        """Return copies of the rows, moved on by a token each; rows that rest stay as they are."""
        keeps = level is Level.FULL
        index = bring(torch.tensor(rows), hidden_SE.device)
        picked = self.state.pick(index, keeps_history=keeps)
        picked.count.zero_()
        self.step.end(picked, hidden_SE, level, most_logprobs)
        self.state.put(index, picked, keeps_history=keeps)
        return picked

    def hurry(self) -> None:
        """Let the launches that are queued end after the step they are in; from any thread.

        Call it when a request comes that may find a row. Each launch still runs one step.
        """
        self._bell.ring()

    def heed(self) -> None:
        """Let later launches run on in spite of the calls of `hurry` so far.

        Call it before looking who waits: a request that comes after that look hurries them again.
        """
        self._bell.heed()

    @property
    def why_queued(self) -> str | None:
        """Why a launch on a GPU is not one graph; None where it is, and before the first one."""
        return self._loop.why_queued

    def launch(self, steps: int) -> Launch:
        """Queue up to `steps` steps of all rows; return at once with a handle on what they give.

        Rows with a grammar run one step if they have been told what may come, and none if not.

        Args:
            steps: The pages that they need must have been set.

        Raises:
            InternalError: OST5131, no row is taken, more steps than the ring holds, or too few
                pages.
        """
        if not len(self._seats):
            raise _impossible("a launch without rows")
        if not 1 <= steps <= self._ring:
            raise _impossible(f"{steps} steps, the ring holds {self._ring}")
        company = self._seats.company
        if not company.is_free and not self._told:
            raise _impossible("a launch in which no row runs")
        share_B = self._seats.shares(steps, self._told)
        wanted = self._seats.wanted(self._pages_for(share_B), self._told)
        bucket = self._bucket(wanted)
        with torch.inference_mode():
            self._moves.send()
            self._send_pages()
            self._wake_told()
            self.state.count.zero_()
            began = self._now()
            ran = self._loop.run(steps, *bucket.key)
            ring = self.state.logprobs
            if ran < steps:
                share_B = np.minimum(share_B, ran)
            return Launch(
                self.state.output_BF[: bucket.rows],
                None if ring is None else ring.first(bucket.rows),
                company.rows_R,
                company.rows_R,
                company.asked,
                self._seats.give(share_B),
                steps=ran,
                wanted=wanted,
                began=began,
            )

    def _now(self) -> torch.cuda.Event | None:
        device = self.state.output_BF.device
        if device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    def warm(
        self,
        rows: int,
        pages: int,
        level: Level = Level.GREEDY,
        *,
        with_logprobs: bool = False,
    ) -> Decision:
        """Record the step that serves `rows` rows of `pages` pages, ahead of a launch."""
        bucket = self._bucket(Wanted(rows, pages, level, with_logprobs))
        with torch.inference_mode():
            return self._loop.warm(*bucket.key)

    def report(self) -> Report:
        """Return what happened to the recordings so far."""
        return self._runner.report()

    def close(self) -> None:
        """Give the recordings back."""
        self._runner.close()

    def _pages_for(self, share_B: Counts) -> int:
        """Return how many pages the longest row needs; all have been granted theirs."""
        needed_B, room_B = self._seats.tokens_after(share_B), self._seats.room_B
        short_B = needed_B > room_B
        if np.count_nonzero(short_B):
            row = int(short_B.argmax())
            needs = f"needs {self._pages_of(needed_B[row])} pages for {share_B[row]} steps"
            raise _impossible(f"row {row} {needs} and has {self._seats.pages_B[row]}")
        return self._pages_of(needed_B[needed_B.argmax()])

    def _pages_of(self, tokens: np.int64) -> int:
        return -(-int(tokens) // self._page_tokens)

    def _bucket(self, wanted: Wanted) -> Bucket:
        most_rows, most_pages = self._pages.shape
        level = self.level_for([wanted.level])
        # Penalties look at the tokens known, so their cost follows the pages too.
        narrows = self._narrows or level is Level.FULL
        return Bucket(
            power_of_two(wanted.rows, most_rows),
            power_of_two(wanted.pages, most_pages) if narrows else most_pages,
            level,
            wanted.with_logprobs,
        )

    def level_for(self, levels: Iterable[Level]) -> Level:
        """Return what a recording computes that serves requests of these levels."""
        needed = max(levels)
        return next(level for level in self.levels if level >= needed)

    def _send_pages(self) -> None:
        """Bring the device's page table up to date, in one copy however many rows changed."""
        if self._moved:
            rows = slice(min(self._moved), max(self._moved) + 1)
            wide = int(self._seats.pages_B.max())
            changed = torch.from_numpy(self._pages[rows, :wide].copy())
            send(self.state.pages_BP[rows, :wide], changed)
            self._moved.clear()

    def _wake_told(self) -> None:
        """Send what may come next in rows with a grammar, and let those rows run a step."""
        if self._told:
            device = self.state.place_BF.device
            rows_R = bring(torch.tensor(list(self._told)), device)
            words_RX = bring(torch.stack(list(self._told.values())), device)
            self.state.sampling.allow(rows_R, words_RX)
            self.state.wake(rows_R)
            self._told.clear()

    def _require_taken(self, row: int) -> None:
        if row not in self._seats:
            raise _impossible(f"row {row} is empty")


def _impossible(problem: str) -> InternalError:
    return InternalError(
        f"the decode loop was asked for what it cannot do: {problem}",
        code="OST5131",
        remedy="report it with the text of the error",
    )
