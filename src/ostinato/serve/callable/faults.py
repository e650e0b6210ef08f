"""How a request to a callable can fail, and how a failure crosses from its process.

`Fault` says who must act in one word; each way in (REST, gRPC, embeddings) has its own status for
it. Every one of them ends one request; `BROKEN` alone means that the model itself is gone.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Final

import msgspec

from ostinato.errors import OstinatoError, ResourceError, UsageError
from ostinato.serve.callable.blame import words_of

_log = logging.getLogger(__name__)


class Fault(StrEnum):
    """Why a request was not answered."""

    REFUSED = "refused"
    FULL = "full"
    LATE = "late"
    FAILED = "failed"
    BROKEN = "broken"
    CLOSING = "closing"


_FAULTS: Final = (
    ("OST6053", Fault.FULL),
    ("OST6054", Fault.LATE),
    ("OST6055", Fault.FAILED),
    ("OST6056", Fault.BROKEN),
    ("OST6058", Fault.CLOSING),
)


class Full(ResourceError):
    """There is no room in the queue.

    Attributes:
        retry_s: When there is likely to be.
    """

    retry_s: float = 1.0


class Failure(msgspec.Struct, frozen=True):
    """An error as plain words."""

    code: str
    problem: str
    remedy: str
    is_usage: bool = False
    retry_s: float | None = None

    @classmethod
    def of(cls, error: OstinatoError) -> Failure:
        """Return the words of `error`."""
        retry_s = error.retry_s if isinstance(error, Full) else None
        is_usage = isinstance(error, UsageError)
        problem, remedy = _sendable(str(error.args[0])), _sendable(error.remedy)
        return cls(error.code, problem, remedy, is_usage, retry_s)

    def error(self) -> OstinatoError:
        """Return an error that says the same."""
        if self.retry_s is not None:
            full = Full(self.problem, code=self.code, remedy=self.remedy)
            full.retry_s = self.retry_s
            return full
        kind = UsageError if self.is_usage else ResourceError
        return kind(self.problem, code=self.code, remedy=self.remedy)


def _sendable(words: str) -> str:
    """Return words as UTF-8 can hold them: half a character is written out."""
    return words.encode("utf-8", "backslashreplace").decode()


def fault_of(error: OstinatoError) -> Fault:
    """Say who must act on `error`."""
    for code, fault in _FAULTS:
        if error.code == code:
            return fault
    return Fault.REFUSED if isinstance(error, UsageError) else Fault.FAILED


def queue_full(waiting: int, retry_s: float) -> Full:
    """Return the error of a request that finds no room; there may be some in `retry_s`."""
    full = Full(
        f"{waiting} requests are waiting, and no more may",
        code="OST6053",
        remedy="send it again later, or serve with a larger --max-waiting",
    )
    full.retry_s = retry_s
    return full


def too_late(timeout_s: float) -> ResourceError:
    """Return the error of a request whose deadline passed."""
    return ResourceError(
        f"the request was not answered within {timeout_s:g} s",
        code="OST6054",
        remedy="allow more time, or send less at once",
    )


def failed(error: BaseException) -> ResourceError:
    """Return the error of a request on which the callable raised, and log what it raised.

    Its words are not for clients: they may hold paths, addresses or another's data.
    """
    _log.error("the model failed on a request", exc_info=error)
    return ResourceError(
        f"the model failed on this request with {type(error).__name__}",
        code="OST6055",
        remedy="look at the tensors of the request; the server's log has the traceback",
    )


def failed_on_zeros(error: BaseException) -> ResourceError:
    """Return the error of a callable that raised while it was warmed; for who serves it."""
    return ResourceError(
        f"the model failed on zeros: {words_of(error)}",
        code="OST6055",
        remedy="call it with zeros of the declared shapes in a Python shell",
    )


def not_started(error: BaseException) -> ResourceError:
    """Return the error of a callable that could not be made ready; for who serves it."""
    return ResourceError(
        f"the model could not be made ready: {words_of(error)}",
        code="OST6056",
        remedy="correct what is raised there; the traceback stands above",
    )


def absent() -> ResourceError:
    """Return the error of a request that comes before the model is there."""
    return ResourceError(
        "the model's process is not ready yet",
        code="OST6056",
        remedy="send it again in a few seconds",
    )


def fatal() -> ResourceError:
    """Return the error of a request that two processes ended with, the second running it alone."""
    return ResourceError(
        "the model's process ended twice while it ran this request, the second time alone",
        code="OST6056",
        remedy="do not send it again before the server's log has told why the process ended",
    )


def unlucky(times: int) -> ResourceError:
    """Return the error of a request that waited while the process ended again and again."""
    return ResourceError(
        f"the model's process ended {times} times before it answered this request",
        code="OST6056",
        remedy="send it again later; the server's log says why the process ended",
    )


def given_up(what: str) -> ResourceError:
    """Return the error of a request whose model is gone for good."""
    return ResourceError(
        f"the model's process {what}, and no other one is started",
        code="OST6056",
        remedy="send it to another server; the log of this one says why",
    )


def never_ready(what: str) -> ResourceError:
    """Return the error of a model that is given up before it was ready; for who serves it."""
    return ResourceError(
        f"the model's process {what}, and left no word why",
        code="OST6056",
        remedy="look at what it wrote above, and call the factory in a Python shell",
    )


def closing() -> ResourceError:
    """Return the error of a request that comes while the server goes."""
    return ResourceError(
        "the server takes no new requests: it is going down",
        code="OST6058",
        remedy="send it to another server",
    )


def too_many_rows(rows: int, most: int) -> UsageError:
    """Return the error of a request that no batch can hold."""
    return UsageError(
        f"the request has {rows} rows, and a batch holds {most}",
        code="OST6057",
        remedy=f"send at most {most} rows at once",
    )
