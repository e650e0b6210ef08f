"""One step of the engine: plan, prefill, seat, launch, and read the launch before.

This is the road of a request, told once. The scheduler decides who runs; a prompt is prefilled in
chunks, its request sits down in a row of the resident state, and a launch takes all rows some
tokens further. A launch is read when the next one has been queued, so the device never waits.

`submit` and `counts` may be called from any thread. Everything else belongs to one thread, and on a
GPU to one stream: rows and pages go to the next request as soon as the books know them free, which
is right because whatever is done to them is queued in the order of the plans.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Literal

import torch

from ostinato.llm.attention import PromptChunk
from ostinato.llm.books import Books
from ostinato.llm.faults import is_device_fault, no_progress, step_failed
from ostinato.llm.first_tokens import begin, comes_of_prefill, with_last_tokens
from ostinato.llm.flight import Flight
from ostinato.llm.models import load_weights
from ostinato.llm.prefill import Prefiller, buckets_for
from ostinato.llm.reading import read_row
from ostinato.llm.reply import Event, Reply
from ostinato.llm.request import FinishReason
from ostinato.llm.resident import Launch, Resident
from ostinato.llm.scheduler import Chunk, Plan
from ostinato.llm.tally import Tally
from ostinato.llm.warming import Warming

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from ostinato.errors import OstinatoError
    from ostinato.llm.config import EngineConfig
    from ostinato.llm.loading import Loaded
    from ostinato.llm.shapes import ShapeProfile

InFlight = Literal["finish", "restart"]
_log = logging.getLogger(__name__)
_MOST_FAILURES = 8
"""Steps that fail in a row and end nobody, before the engine has failed."""


class Core:
    """The step, and the state it works on.

    Args:
        loaded: The model and its memory.
        config: The engine's options.
        profile: Shapes that were in use before.
        depth: Launches under way at once; None: 2 on a GPU, and 1 on a CPU, where a launch is over
            when its call returns.
        begins_in_prefill: Whether first tokens may come of the prefill; None: on a GPU they may,
            unless a token's bits must not depend on its company.
    """

    def __init__(
        self,
        loaded: Loaded,
        config: EngineConfig,
        *,
        profile: ShapeProfile | None = None,
        depth: int | None = None,
        begins_in_prefill: bool | None = None,
    ) -> None:
        limits = loaded.limits
        self._decoder = loaded.decoder
        self._is_gpu = loaded.device.type == "cuda"
        self._depth = depth or (2 if self._is_gpu else 1)
        if begins_in_prefill is None:
            begins_in_prefill = self._is_gpu and not loaded.decoder.is_invariant
        self._begins_in_prefill = begins_in_prefill
        self._books = Books(limits, loaded.store.pages, prefix_cache=config.prefix_cache)
        # On a CPU a recording costs as much as fifty steps (SmolLM2, one core), and a replay takes
        # as long as an eager step: the arithmetic outweighs everything else.
        backend = "eager" if config.backend == "auto" and not self._is_gpu else config.backend
        max_pages = min(limits.pages_for(limits.max_model_len), self._books.capacity)
        # Those of a plan, and one more of each that gets its first token of the prefill.
        most_tokens = limits.prefill_tokens + limits.max_batch
        self._prefiller = Prefiller(
            loaded.decoder,
            loaded.attention,
            loaded.store,
            max_pages=max_pages,
            buckets=buckets_for(loaded.decoder_config, loaded.store.keys.dtype, most_tokens),
            backend=backend,
        )
        self.resident = Resident(
            loaded.decoder,
            loaded.attention,
            loaded.store,
            vocabulary=loaded.decoder_config.vocabulary,
            max_batch=limits.max_batch,
            max_pages=max_pages,
            ring=limits.steps_per_launch,
            most_logprobs=config.most_logprobs,
            backend=backend,
        )
        self.warming = Warming(
            self.resident,
            self._prefiller,
            limits,
            profile,
            is_gpu=self._is_gpu,
            begins_in_prefill=begins_in_prefill,
        )
        self._seated: dict[int, Reply] = {}
        self._flights: deque[Flight] = deque()
        self._news: list[Event] = []
        self._vain_failures = 0
        self.tally = Tally()

    def submit(self, replies: Sequence[Reply]) -> None:
        """Let a request wait for its turn; see `Books.submit`. From any thread."""
        self._books.submit(replies)
        if self._books.has_room:
            self.resident.hurry()  # so that it does not wait for a whole launch

    def admit(self, replies: Sequence[Reply], error: OstinatoError | None = None) -> None:
        """Let those wait for their turn who were expected, or end them in an error."""
        if error is None:
            self._books.admit(replies)
            return
        for reply in replies:
            # One that is over may have left its name to another.
            if not reply.is_over and self._books.remove(reply.request_id) is not None:
                self._end(Event(reply, finish=FinishReason.ERROR, error=error))

    def step(self) -> list[Event]:
        """Take every request one launch further, and return what the launch before brought.

        A step that fails ends the requests of its batch in an error; those that wait go on. If
        there is no batch, it ends the one that was next: it would fail for ever.

        Raises:
            RuntimeError: The device has failed; nothing works any more.
            Exception: Step after step fails, and there is nobody left to end.
        """
        try:
            self._step()
            self._vain_failures = 0
        except Exception as error:  # whatever it is, those who wait must not wait for ever
            if is_device_fault(error):
                raise
            self._recover(error)
        return self.take_news()

    def _step(self) -> None:
        self.resident.heed()
        plan = self._books.plan()
        self._unseat(plan.preempted)
        begins = self._begins_in_prefill and comes_of_prefill(plan, self._books)
        hidden_SE = self._prefill(with_last_tokens(plan.prefill) if begins else plan.prefill)
        self._seat(plan.joining)
        self._lengthen(plan.grown)
        if begins and hidden_SE is not None:
            self._flights.append(self._begin(plan, hidden_SE))
        elif not plan.is_empty:
            self._flights.append(self._launch(plan))
        if len(self._flights) >= (1 if plan.is_empty else self._depth):
            self._read_oldest()
        elif plan.is_empty and self.has_work:
            raise no_progress()

    def _unseat(self, preempted: Sequence[str]) -> None:
        for request_id in preempted:
            self._leave(self._books.reply(request_id))

    def _prefill(self, chunks: Sequence[Chunk]) -> Tensor | None:
        if not chunks:
            return None
        return self._prefiller.run([PromptChunk(*self._books.stretch(each)) for each in chunks])

    def _begin(self, plan: Plan, hidden_SE: Tensor) -> Flight:
        begins = frozenset(plan.decode)
        riders = {row: each for row, each in self._seated.items() if each.request_id in begins}
        rows = {reply.request_id: row for row, reply in riders.items()}
        return Flight(begin(self.resident, rows, plan, hidden_SE), riders)

    def _seat(self, joining: Sequence[str]) -> None:
        for request_id in joining:
            reply, seat = self._books.reply(request_id), self._books.seat(request_id)
            self.resident.join(
                seat.row,
                seat.ids,
                reply.request.params,
                prompt_tokens=len(reply.request.prompt_ids),
                stop_ids=reply.stop_ids,
                seed=reply.seed,
                left=seat.left,
            )
            reply.row = seat.row
            self._seated[seat.row] = reply
            self.resident.set_pages(seat.row, seat.pages)

    def _lengthen(self, grown: Sequence[str]) -> None:
        for request_id in grown:
            row = self._books.reply(request_id).row
            assert row is not None
            granted = self.resident.granted(row)
            self.resident.set_pages(row, self._books.pages_of(request_id, granted), granted)

    def _launch(self, plan: Plan) -> Flight:
        if plan.decode:
            return Flight(self._queue(plan), dict(self._seated))
        prefilled = torch.cuda.Event() if self._is_gpu else None
        if prefilled is not None:
            prefilled.record()
        return Flight(None, {}, prefilled)

    def _queue(self, plan: Plan) -> Launch:
        for request_id in plan.single:
            reply = self._books.reply(request_id)
            assert reply.row is not None
            assert reply.allowed is not None
            self.resident.set_allowed(reply.row, reply.allowed)
        launch = self.resident.launch(plan.steps)
        assert launch.wanted is not None
        self.warming.note(launch.wanted)
        return launch

    def _read_oldest(self) -> None:
        """Read the oldest launch, and end what ended in it."""
        flight = self._flights.popleft()
        try:
            produced = flight.wait()
            self.tally.count_launch(flight.launch, produced)
            news = [
                read_row(reply, row, produced)
                for row, reply in flight.riders.items()
                if not reply.is_over
            ]
            over = self._books.advance(
                {event.reply.request_id: event.token_ids for event in news},
                {event.reply.request_id: event.finish for event in news if event.finish},
            )
        except Exception:
            # The books and the launches behind it are out of step: none of them can be read.
            self._flights.clear()
            raise
        self._tell(news, over)

    def _tell(self, news: Sequence[Event], over: Mapping[str, FinishReason]) -> None:
        """Tell what was read and booked; whoever is `over` ends."""
        now_s = monotonic()
        for event in news:
            reply, new = event.reply, len(event.token_ids)
            if new and reply.note_tokens(new, now_s):
                self._books.let_followers_in(reply.request_id)
            event.finish = over.get(reply.request_id)
            if event.finish is not None:
                self._end(event)
            elif new:
                self._news.append(event)

    def _end(self, last: Event) -> None:
        """Let a request that the books know no more get up from its row, and tell its end."""
        reply, finish = last.reply, last.finish
        assert finish is not None
        self._leave(reply)
        reply.is_over = True
        self._books.let_followers_in(reply.request_id)
        self.tally.count_end(finish, reply.produced, last.error)
        last.metrics = reply.metrics()
        self._news.append(last)

    def _leave(self, reply: Reply) -> None:
        if reply.row is not None:
            self.resident.leave(reply.row)
            del self._seated[reply.row]
            reply.row = None

    def take_news(self) -> list[Event]:
        """Return what happened since the last call."""
        news, self._news = self._news, []
        return news

    def cancel(self, request_id: str) -> bool:
        """End a request, wherever it is; False if it does not live any more."""
        reply = self._books.remove(request_id)
        if reply is None:
            return False
        self._end(Event(reply, finish=FinishReason.ABORT))
        return True

    def _recover(self, error: Exception) -> None:
        """End the requests in rows in an error, and leave everything else as if they never were."""
        _log.error("a step failed, and the requests of its batch with it", exc_info=error)
        self.tally.failures["step"] += 1
        ended_before = self.tally.ends.total()
        try:
            while self._flights:  # launched before this step: nothing is wrong with those
                self._read_oldest()
        except Exception as another:
            if is_device_fault(another):
                raise
            _log.exception("the launch before it cannot be read either")
        failed = self._books.remove_running()
        for reply in failed:
            self._end(Event(reply, finish=FinishReason.ERROR, error=step_failed(error)))
        for reply in list(self._seated.values()):  # sent back to wait by the plan that failed
            self._leave(reply)
        if self.tally.ends.total() == ended_before:
            self._end_next(error)

    def _end_next(self, error: Exception) -> None:
        """End the request that was next to begin, when a step failed that had nobody to end."""
        waiting = [
            reply
            for reply in self._books.living()
            if reply.grammar is not None or reply.request.params.schema is None
        ]
        if waiting:
            reply = min(waiting, key=lambda reply: reply.request.priority)
            self._books.remove(reply.request_id)
            self._end(Event(reply, finish=FinishReason.ERROR, error=step_failed(error)))
            return
        self._vain_failures += 1
        if self._vain_failures >= _MOST_FAILURES:
            raise error

    def update_weights(
        self, given: Mapping[str, Tensor] | Path | str, in_flight: InFlight = "finish"
    ) -> None:
        """Replace the weights in place, between two launches; all of them or none.

        Args:
            given: A state dict with transformers' names, or a folder of safetensors files.
            in_flight: "finish": running requests go on with the keys and values they have;
                "restart": theirs are computed anew, prompt and answer so far.

        Raises:
            UsageError: As `load_weights`; nothing has changed.
        """
        load_weights(self._decoder, given)
        if in_flight == "finish":
            self._books.forget_prefixes()
            return
        for reply in self._books.restart():
            self._leave(reply)

    def settle(self) -> None:
        """Wait for what is under way, once every request has been cancelled."""
        while self._flights:
            self._read_oldest()

    def idle(self) -> bool:
        """Record one shape ahead of its use; False if there is none left to record."""
        return self.warming.warm_one()

    @property
    def has_work(self) -> bool:
        """Whether a step has something to do."""
        return self._books.has_work

    @property
    def is_idle(self) -> bool:
        """Whether no request lives and nothing is under way."""
        return self._books.is_idle

    @property
    def books(self) -> Books:
        """Who lives, and how the scheduler stands."""
        return self._books

    def close(self) -> None:
        """Give the recordings back."""
        self.resident.close()
        self._prefiller.close()
