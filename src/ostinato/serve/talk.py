"""One request for text on its way through a front end, from the door to its last block.

Whatever it asked by (chat, a completion, the Open Inference Protocol): it is let in or refused, it
ends at once when its client goes away or the server stops, and its times are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from ostinato.serve.answers import Refused
from ostinato.serve.drain import NOT_ALONE
from ostinato.serve.openai.errors import HttpProblem, of_problem
from ostinato.serve.services import GenerateRequest, TokenBlock
from ostinato.serve.slo import length_class
from ostinato.serve.telemetry import Answered

if TYPE_CHECKING:
    from starlette.requests import Request

    from ostinato.serve.services import Answers, Services
    from ostinato.serve.wire import Problem

_TRACE = ("traceparent", "tracestate")


class Talk:
    """One request; `async for prompt, block in talk`.

    Attributes:
        prompt_tokens: Of all its prompts.
        new_tokens: Of all its answers so far.
        error: What went wrong, once something has.
    """

    def __init__(self, services: Services, kind: str, asked: Sequence[GenerateRequest]) -> None:
        self._services, self._kind, self._asked = services, kind, asked
        self._answers: list[Answers] = []
        self._watch: asyncio.Task[None] | None = None
        self._began, self._began_ns = monotonic(), time_ns()
        self._carrier: dict[str, str] = {}
        self._ttft_s: float | None = None
        self._last: float | None = None
        self._queued_s: float | None = None
        self._finish = "abort"
        self._why_cut = "disconnected"
        self.prompt_tokens = sum(len(one.prompt_ids) for one in asked)
        self._class = length_class(max(len(one.prompt_ids) for one in asked))
        self.new_tokens = 0
        self._cached: dict[int, int] = {}
        self.error: Problem | None = None

    async def begin(self, request: Request | None) -> None:
        """Ask the engine; returns when all is let in.

        Args:
            request: To see its client go away; None where this task is cancelled then.

        Raises:
            HttpProblem: 429, not now; 400, not ever; 503, not here.
        """
        services = self._services
        link = services.link
        assert link is not None
        if self._is_probe():
            self._asked = [replace(self._asked[0], is_lone=True), *self._asked[1:]]
        if request is not None:
            self._watch = watch(request)
            if services.telemetry is not None:
                self._carrier = {
                    name: value for name, value in request.headers.items() if name in _TRACE
                }
        try:
            for one in self._asked:
                self._answers.append(await link.submit(one))
        except Refused as refused:
            self._drop()
            problem = refused.problem
            if problem.code == NOT_ALONE:
                raise self._shed() from refused
            if problem.kind in ("full", "down"):
                services.metrics.shed(_shed_reason(problem))
            raise of_problem(problem) from refused
        except BaseException:
            self._drop()
            raise
        services.metrics.request_began(self._kind, self.prompt_tokens)
        services.drain.watch(self, self.cut)

    def _is_probe(self) -> bool:
        """Whether the breaker sheds it unless nobody else is served.

        A refusal would help nobody then: a machine that is too slow for its promise when idle
        answers late, and not never. This front end knows its own requests, the engine all of them.
        """
        breaker, link = self._services.breaker, self._services.link
        if breaker is None or link is None:
            return False
        if breaker.admits(max(one.priority for one in self._asked), monotonic()):
            return False
        if link.open_requests:
            raise self._shed()
        return True

    def _shed(self) -> HttpProblem:
        breaker = self._services.breaker
        assert breaker is not None
        self._services.metrics.shed("breaker")
        return HttpProblem(
            429,
            "the server does not keep its promised times now and sheds load; "
            "send the request again later, or with a smaller priority number",
            code="breaker_open",
            retry_s=breaker.retry_after_s(monotonic()),
        )

    def cut(self, problem: Problem) -> None:
        """End it in an error; the reader finds it."""
        self._why_cut = "drained"
        for answers in self._answers:
            answers.end(problem)

    async def __aiter__(self) -> AsyncIterator[tuple[int, TokenBlock]]:
        if len(self._answers) == 1:
            async for block in self._answers[0]:
                self._note(0, block)
                yield 0, block
            return
        async for prompt, block in _together(self._answers):
            self._note(prompt, block)
            yield prompt, block

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were found computed; each prompt counts once, however many answers.

        The answers after the first one find what that one computed, which is no other request's.
        """
        return sum(self._cached.values())

    def _note(self, prompt: int, block: TokenBlock) -> None:
        count = len(block.token_ids)
        if count:
            self._note_tokens(count)
        if block.finish_reason is not None:
            self._finish = block.finish_reason
            if block.error is not None:
                self.error = block.error
                if block.error.code == "OST6020":
                    self._services.metrics.aborted("engine-lost")
            if block.timing is not None:
                found = block.timing.cached_tokens
                self._cached[prompt] = min(self._cached.get(prompt, found), found)
                self._queued_s = block.timing.queued_s

    def _note_tokens(self, count: int) -> None:
        metrics, breaker = self._services.metrics, self._services.breaker
        now = monotonic()
        self.new_tokens += count
        if self._last is None:
            ttft_s = self._ttft_s = now - self._began
            metrics.first_token(ttft_s, self._class)
            if breaker is not None:
                breaker.observe(now, ttft_s=ttft_s, length_class=self._class)
            if count > 1:
                metrics.tokens(count - 1, 0.0, self._class)
        else:
            gap_s = now - self._last
            metrics.tokens(count, gap_s, self._class)
            if breaker is not None:
                breaker.observe(now, itl_s=gap_s / count, count=count, length_class=self._class)
        self._last = now

    def end(self) -> None:
        """It has been answered, or nobody is there any more; must be called, once."""
        services = self._services
        services.drain.unwatch(self)
        self._drop()
        services.metrics.request_ended(
            self._finish, monotonic() - self._began, self._queued_s, kind=self._kind
        )
        if self._finish == "abort" or self._why_cut == "drained":
            services.metrics.aborted(self._why_cut)
        if services.telemetry is not None:
            services.telemetry.answered(self._answered())

    def _answered(self) -> Answered:
        model, first = self._services.model, self._asked[0]
        return Answered(
            operation="chat" if self._kind in ("chat", "responses") else "text_completion",
            model=model.name,
            version=model.version,
            began_ns=self._began_ns,
            ended_ns=time_ns(),
            queued_s=self._queued_s,
            ttft_s=self._ttft_s,
            input_tokens=self.prompt_tokens,
            output_tokens=self.new_tokens,
            cached_tokens=self.cached_tokens,
            finish_reasons=(self._finish,),
            error=None if self.error is None else self.error.code,
            request_id=first.request_id,
            options={
                name: value
                for name, value in first.options.items()
                if isinstance(value, int | float)
            },
            carrier=self._carrier,
        )

    def _drop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for answers in self._answers:
            answers.cancel()


def _shed_reason(problem: Problem) -> str:
    if problem.kind == "full":
        return "queue-full"
    return "draining" if problem.code in ("OST6022", "OST6023", "OST5140") else "no-engine"


def watch(request: Request) -> asyncio.Task[None]:
    """End the task that answers `request` when its client goes away.

    The body must have been read. The outermost middleware knows that it was the client.
    """
    answering = asyncio.current_task()
    assert answering is not None
    return asyncio.get_running_loop().create_task(_watch(request, answering))


async def _watch(request: Request, answering: asyncio.Task[object]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    request.scope["ostinato.gone"] = True
    answering.cancel()


async def _together(several: Sequence[Answers]) -> AsyncIterator[tuple[int, TokenBlock]]:
    """Yield the blocks of several answers as they come."""
    blocks: asyncio.Queue[tuple[int, TokenBlock] | None] = asyncio.Queue()

    async def read(prompt: int, answers: Answers) -> None:
        async for block in answers:
            blocks.put_nowait((prompt, block))
        blocks.put_nowait(None)

    readers = [asyncio.create_task(read(at, one)) for at, one in enumerate(several)]
    try:
        left = len(several)
        while left:
            came = await blocks.get()
            if came is None:
                left -= 1
            else:
                yield came
    finally:
        for reader in readers:
            reader.cancel()
