"""From what went wrong while recording on CUDA to one reason, one line and one remedy.

The observed eager run knows best: it named the op and the line. Only what it could not see (a
library that waits for the device in C++, another thread) is read off the exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.errors import CaptureError
from ostinato.graphs.reasons import Reason
from ostinato.graphs.source_lines import raising_line

if TYPE_CHECKING:
    from ostinato.graphs.observe import Observation

_INVALIDATED = (
    "cudaErrorStreamCaptureInvalidated",
    "due to a previous error during capture",
    # What libraries say, without the cause, of a launch into a capture that was ended under them.
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUFFT_EXEC_FAILED",
    "CUSPARSE_STATUS_EXECUTION_FAILED",
)

# First match wins; the texts are those of torch 2.11 to 2.13 and the CUDA 13 runtime.
_TEXTS: tuple[tuple[str, Reason], ...] = (
    ("unless the CPU tensor is pinned", Reason.HOST_COPY),
    ("unexpected CUDA generator", Reason.UNREGISTERED_GENERATOR),
    ("CUDA generator not in capture mode", Reason.UNREGISTERED_GENERATOR),
    ("register_generator_state", Reason.UNREGISTERED_GENERATOR),
    ("cudaErrorStreamCaptureUnsupported", Reason.HOST_SYNC),
    ("not permitted when stream is capturing", Reason.HOST_SYNC),
    ("cudaErrorStreamCaptureImplicit", Reason.HOST_SYNC),
    ("legacy stream", Reason.HOST_SYNC),
)

_REMEDIES = {
    Reason.HOST_SYNC: "keep the value on the device, or move the line out of the function",
    Reason.HOST_COPY: "make the tensor on the device, or pass it in as an argument",
    Reason.DATA_DEPENDENT_SHAPE: "give the result a fixed size, for example with torch.where",
    Reason.UNREGISTERED_GENERATOR: "draw from the default generator, or from one on this device",
    Reason.SEVERAL_DEVICES: "graph the part on each device by itself",
    Reason.COMPILED_INSIDE: "compile without CUDA graphs: torch.compile(mode='default')",
}
_OTHER_REMEDY = "run it eagerly, or move the failing line out of the function"


class InductorGraphInside(RuntimeError):
    """A compiled part of the step was about to replay or record a CUDA graph of its own."""


def refused(reason: Reason, problem: str) -> CaptureError:
    """Return the error that says why a step cannot be recorded."""
    remedy = _REMEDIES.get(reason, _OTHER_REMEDY)
    return CaptureError(problem, code="OST1101", remedy=remedy, reason=reason.value)


def refused_by(observation: Observation) -> CaptureError | None:
    """Return the error for the first thing the observed run saw that no recording holds."""
    if not observation.refusals:
        return None
    first = observation.refusals[0]
    place = f" at {first.where}" if first.where else ""
    return refused(first.reason, f"{first.op}{place} cannot be recorded: {first.detail}")


def explained(error: Exception) -> CaptureError:
    """Return the error to raise for an exception out of a warm-up or a capture."""
    place = raising_line(error.__traceback__)
    at = f" at {place}" if place else ""
    return refused(_reason(error), f"recording failed{at}: {_first_line(error)}")


def invalidated_from_outside(error: Exception) -> bool:
    """Say whether a capture broke without the step itself having done a forbidden thing.

    Something else touched it (another thread's event query, a library's own thread); trying again
    is worth it. A forbidden call in the step raises its own error at its own line instead.
    """
    return any(text in str(error) for text in _INVALIDATED)


def _reason(error: Exception) -> Reason:
    if isinstance(error, InductorGraphInside):
        return Reason.COMPILED_INSIDE
    text = str(error)
    return next((reason for words, reason in _TEXTS if words in text), Reason.CAPTURE_ERROR)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
