"""The answers to one request on a front end: blocks come in, one reader takes them out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from ostinato.serve.services import GenerateRequest, TokenBlock
from ostinato.serve.wire import Generate, Problem

if TYPE_CHECKING:
    from ostinato.llm.text import AnswerText


class Refused(Exception):
    """The engine did not let a request in, or did not do what it was asked."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Holder(Protocol):
    """The link that an answer came by."""

    def forget(self, answers: Answers, *, is_over: bool) -> None: ...


class Answers:
    """`async for block in answers`; see `services.Answers`.

    Attributes:
        key: Names the request on its link.
        admitted: Done when the engine has let it in; carries why not, otherwise.
        texts: What makes the text of each answer; None: none is wanted.
        has_come: Whether anything has: then it cannot be asked for again.
        was_resent: Whether it was asked for a second time.
    """

    def __init__(self, holder: Holder, key: int, request: GenerateRequest) -> None:
        self.key = key
        self.request = request
        self.texts: list[AnswerText] | None = None
        self.has_come = False
        self.was_resent = False
        loop = asyncio.get_running_loop()
        self.admitted: asyncio.Future[None] = loop.create_future()
        self._holder = holder
        self._left = int(request.options.get("n", 1))
        self._ready: dict[int, TokenBlock] = {}
        self._waiter: asyncio.Future[None] | None = None

    def message(self) -> Generate:
        """Return the request as it is sent."""
        request = self.request
        return Generate(
            self.key,
            list(request.prompt_ids),
            dict(request.options),
            request.priority,
            request.salt,
            # One that was let in once stays so, whoever else is asked for again.
            is_lone=request.is_lone and not self.was_resent,
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes; there may be blocks left to read."""
        return self._left <= 0

    def admit(self) -> None:
        """The engine has let it in."""
        if not self.admitted.done():
            self.admitted.set_result(None)

    def put(self, block: TokenBlock) -> None:
        """Take a block; it joins those of the same answer that nobody has read."""
        if self._left <= 0:
            return
        self.has_come = True
        self.admit()  # news may overtake the word that it was let in
        if block.finish_reason is not None:
            self._left -= 1
            if self._left <= 0:
                self._holder.forget(self, is_over=True)
        waiting = self._ready.get(block.index)
        self._ready[block.index] = block if waiting is None else merged(waiting, block)
        self._wake()

    def end(self, problem: Problem) -> None:
        """End it in an error, here; what has come stays readable."""
        if self._left <= 0:
            return
        self._left = 0
        self._holder.forget(self, is_over=False)
        if not self.admitted.done():
            self.admitted.set_exception(Refused(problem))
            self.admitted.exception()  # seen, whether or not somebody waits
        last = TokenBlock(0, "", [], finish_reason="error", error=problem)
        waiting = self._ready.pop(0, None)
        self._ready[0] = last if waiting is None else merged(waiting, last)
        self._wake()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if self._left > 0:
            self._left = 0
            self._holder.forget(self, is_over=False)
        self._ready.clear()
        self._wake()

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> TokenBlock:
        while not self._ready:
            if self._left <= 0:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        index = next(iter(self._ready))
        return self._ready.pop(index)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def merged(first: TokenBlock, second: TokenBlock) -> TokenBlock:
    """Return two blocks of one answer as one."""
    first.text += second.text
    first.token_ids = first.token_ids + second.token_ids
    if second.logprobs is not None:
        first.logprobs = (first.logprobs or []) + second.logprobs
    first.finish_reason = second.finish_reason
    first.error = second.error
    first.timing = second.timing
    return first
