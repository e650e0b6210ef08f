"""What `on_unfit="raise"` raises for which reason: the call is wrong, or the function unfit."""

from __future__ import annotations

from ostinato.errors import CaptureError, OstinatoError, UsageError
from ostinato.graphs.reasons import Reason, remedy

_PASSING = frozenset(
    {
        Reason.NOT_ADMITTED_YET,
        Reason.NEW_OBJECT,
        Reason.BEING_RECORDED,
        Reason.EAGER_BACKEND,
        Reason.CLOSED,
        Reason.INVALIDATED,
        Reason.WEIGHTS_MOVED,
        Reason.ATTRIBUTE_CHANGED,
        Reason.EMPTY_BATCH,
    }
)
"""They pass by themselves, so nothing is raised for them."""
_OF_THE_CALL = frozenset(
    {
        Reason.OUTSIDE_BUCKETS,
        Reason.SEVERAL_DEVICES,
        Reason.REQUIRES_GRAD,
        Reason.UNSUPPORTED_INPUT,
        Reason.UNSUPPORTED_DEVICE,
    }
)
"""They lie in the call; the others lie in the function."""


def error_for(name: str, reason: Reason, detail: str) -> OstinatoError | None:
    """Return what to raise where the runner `name` cannot replay; None for what passes."""
    if reason in _PASSING:
        return None
    kind: type[OstinatoError] = UsageError if reason in _OF_THE_CALL else CaptureError
    return kind(
        f"{name} cannot be replayed: {detail or reason}",
        code=str(reason),
        remedy=remedy(reason),
        reason=str(reason),
    )
