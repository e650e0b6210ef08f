"""The thread that runs the step, as long as there is something to do.

Commands come in from any thread and are obeyed between two steps. A fault of the device ends the
loop: whoever waits is told why, and so is whoever asks later. The thread holds nothing of the
engine that owns it, so that an engine nobody closed can be collected, or the interpreter exit.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ostinato.llm.faults import (
    EngineDown,
    ends_engine,
    engine_closed,
    engine_failed,
    in_another_process,
    is_device_fault,
    once_more,
)
from ostinato.llm.reply import Event, Reply
from ostinato.llm.request import FinishReason
from ostinato.llm.standing import Health
from ostinato.llm.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato.errors import OstinatoError
    from ostinato.llm.core import Core

_log = logging.getLogger(__name__)
_QUIET_S = 0.25
"""Since the last step, before a recording is made ahead: one takes longer than a first token."""
_Answer = TypeVar("_Answer")


class Loop:
    """Runs `core` in a thread of its own.

    Attributes:
        fault: Why the loop has ended by itself; None while all is well.
        has_ended: Whether it does nothing more, for whatever reason.
        last_step_s: When it last finished a step or found nothing to do, on `time.monotonic`.
    """

    def __init__(self, core: Core, device: torch.device) -> None:
        self._core, self._device = core, device
        self._process = os.getpid()
        self._commands: deque[_Command] = deque()
        # Taken once more by a thread that has it, if an engine is collected just then and closes.
        self._entry = threading.RLock()
        self._await_work, self._await_rest = Waiters(), Waiters()
        self._is_idle = True
        self._is_closing = False
        self.has_ended = False
        self._refusal: EngineDown | None = None
        self.fault: EngineDown | None = None
        self.last_step_s = monotonic()
        self._worked_s = -math.inf
        self._thread = threading.Thread(target=self._run, name="ostinato-engine", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, let_in: Callable[[Sequence[Reply]], None], replies: Sequence[Reply]) -> None:
        """Let `replies` in, by `let_in`; never waits for a step.

        Only after `require_own_process`: it is not asked again here.

        Raises:
            EngineDown: OST5140, OST5141, the engine takes none.
            PromptTooLong, QueueFull, UsageError: As `Scheduler.submit`.
        """
        with self._entry:
            if self._refusal is not None:
                raise once_more(self._refusal)
            let_in(replies)
            self._is_idle = False
        self._await_work.tell()

    def admit(self, replies: Sequence[Reply], error: OstinatoError | None) -> None:
        """Let those in who were expected, or end them in an error; from any thread."""
        with suppress(EngineDown):  # whoever waits has been told
            self.call(lambda: self._core.admit(replies, error))

    def call(self, command: Callable[[], _Answer]) -> Future[_Answer]:
        """Have something done in the loop's thread, between two steps.

        Raises:
            EngineDown: OST5140, OST5141, the loop has ended; OST5145, it runs elsewhere.
        """
        self.require_own_process()
        done: Future[_Answer] = Future()
        with self._entry:
            if self._is_closing or self.fault is not None:
                raise once_more(self.fault or engine_closed(is_draining=False))
            self._commands.append(_Command(command, done))
        self._await_work.tell()
        return done

    def cancel(self, replies: Sequence[Reply]) -> None:
        """End requests wherever they are; never waits.

        Whoever has since taken the name of one that is over is not meant.
        """
        self.require_own_process()
        command = _Command(lambda: self._cancel(replies), Future())
        with self._entry:
            if self._is_closing or self.fault is not None:
                return  # they are ended already, or about to be
            self._commands.append(command)
        self._await_work.tell()

    def refuse(self) -> None:
        """Let nobody in any more."""
        self.require_own_process()
        with self._entry:
            self._refusal = self._refusal or engine_closed(is_draining=True)
        # Whoever was interrupted when it let somebody in may not have told.
        self._await_work.tell()

    def wait_idle(self, timeout_s: float | None) -> bool:
        """Wait until no request lives; False if some still do after `timeout_s`."""
        self.require_own_process()
        return self._await_rest.wait_for(lambda: self._is_idle, timeout_s)

    def wait_warm(self, timeout_s: float | None) -> bool:
        """Wait until nothing is left to be recorded ahead; False if something is."""
        self.require_own_process()
        warming = self._core.warming
        self._await_rest.wait_for(lambda: warming.is_done or self.has_ended, timeout_s)
        return warming.is_done

    def abort_all(self) -> None:
        """End every living request."""
        self.cancel(self._core.books.living())

    def close(self) -> None:
        """End every living request, and the thread; waits for it."""
        if self.is_foreign:
            return  # the thread and those who wait are in another process
        with self._entry:
            self._is_closing = True
            self._refusal = self.fault or engine_closed(is_draining=False)
        self._await_work.tell()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the loop's own, and has none of its thread."""
        return os.getpid() != self._process

    def require_own_process(self) -> None:
        """Refuse to wait for a thread that is not there; before any lock, which may be held.

        Raises:
            EngineDown: OST5145.
        """
        if self.is_foreign:
            raise in_another_process()

    def require_taking(self) -> None:
        """Raise why requests are refused, if they are.

        Raises:
            EngineDown: As `submit`.
        """
        self.require_own_process()
        if self._refusal is not None:
            raise once_more(self._refusal)

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_refusing(self) -> bool:
        """Whether new requests are refused."""
        return self._refusal is not None

    def health(self) -> Health:
        """Say whether it works; never waits for a step."""
        if self.is_foreign:  # its locks may be held by threads that are not here
            elsewhere = str(in_another_process().args[0])
            return Health(
                False, elsewhere, is_taking=False, idle_s=0.0, living=False, is_warm=False
            )
        fault = self.fault
        is_dead = fault is None and not self.is_running
        why = str(fault.args[0]) if fault else "the engine is closed" if is_dead else None
        return Health(
            is_healthy=why is None,
            why=why,
            is_taking=not self.is_refusing,
            idle_s=monotonic() - self.last_step_s,
            living=not self._core.is_idle,
            is_warm=self._core.warming.is_done,
        )

    def _run(self) -> None:
        try:
            if self._device.type == "cuda":
                with torch.cuda.device(self._device), torch.cuda.stream(self._own_stream()):
                    self._go_round()
            else:
                self._go_round()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._fail(error)
        finally:
            self.has_ended = True
            self._await_rest.tell()

    def _own_stream(self) -> torch.cuda.Stream:
        """Return the one stream of the loop, behind whatever loading has queued elsewhere."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.Stream(self._device)

    def _go_round(self) -> None:
        while not self._is_closing:
            self._obey()
            if self._core.has_work:
                self._deliver(self._core.step())
                self._worked_s = monotonic()
            elif self._is_quiet() and not self._warm():
                self._await_work.wait_for(self._has_work)
            self.last_step_s = monotonic()
        self._cancel(self._core.books.living())
        self._core.settle()
        self._obey()
        self._rest()

    def _obey(self) -> None:
        while self._commands:
            self._commands.popleft().obey()
        self._deliver(self._core.take_news())

    def _cancel(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if self._core.books.is_living(reply):
                self._core.cancel(reply.request_id)
        self._deliver(self._core.take_news())

    def _deliver(self, news: Sequence[Event]) -> None:
        for event in news:
            reply = event.reply
            if reply.sink is not None:
                try:
                    reply.sink(event)
                except BaseException:  # noqa: BLE001 - whoever reads this one harms nobody else
                    _log.exception("the reader of request %s failed", reply.request_id)
                    self._give_up(reply)
                if event.finish is not None:
                    # It leads to the reader's events, and they lead here: nothing else would free
                    # them but a search for garbage.
                    reply.sink = None

    def _give_up(self, reply: Reply) -> None:
        """End a request that nobody can be told of any more."""
        reply.sink = None
        if self.fault is None and self._core.books.is_living(reply):
            self._core.cancel(reply.request_id)

    def _is_quiet(self) -> bool:
        """Wait a little for work, and say whether none came."""
        self._rest()
        left_s = max(0.0, self._worked_s + _QUIET_S - monotonic())
        return not self._await_work.wait_for(self._has_work, left_s)

    def _warm(self) -> bool:
        """Record the next step ahead; False if there is none left."""
        try:
            return self._core.idle()
        except Exception as error:
            if is_device_fault(error):
                raise
            _log.warning("a step could not be recorded ahead, and none will be", exc_info=True)
            self._core.warming.give_up()
            return False
        finally:
            self._rest()

    def _rest(self) -> None:
        """Tell those who wait for it that no request lives."""
        with self._entry:
            self._is_idle = self._core.is_idle
        self._await_rest.tell()

    def _has_work(self) -> bool:
        return bool(self._commands) or self._core.has_work or self._is_closing

    def _fail(self, error: BaseException) -> None:
        """End everything, and say why to everybody; the device is not touched any more."""
        fault = engine_failed(error)
        _log.critical("%s", fault, exc_info=error)
        with self._entry:
            self.fault = self._refusal = fault
            commands, self._commands = self._commands, deque()
        for reply in self._core.books.living():
            reply.is_over = True
            last = Event(reply, finish=FinishReason.ERROR, error=fault, metrics=reply.metrics())
            self._deliver([last])
        for command in commands:
            command.give_up(fault)
        self._is_idle = True


@dataclass(frozen=True, slots=True)
class _Command:
    """Something to be done between two steps, and where its outcome is awaited."""

    run: Callable[[], Any]
    done: Future[Any]

    def obey(self) -> None:
        if not self.done.set_running_or_notify_cancel():
            return  # nobody wants it any more
        try:
            self.done.set_result(self.run())
        except BaseException as error:
            self.done.set_exception(error)
            if ends_engine(error):
                raise

    def give_up(self, why: EngineDown) -> None:
        if self.done.set_running_or_notify_cancel():
            self.done.set_exception(why)
