"""What can go wrong in a step, and whom it concerns: a request, a batch, or the whole engine."""

from __future__ import annotations

import torch

from ostinato.errors import InternalError, OstinatoError, ResourceError
from ostinato.llm.models.weights import WeightsLost


class StepFailed(OstinatoError, RuntimeError):
    """The step that a request was in failed; the engine went on."""


class NotNumbers(OstinatoError, ArithmeticError):
    """A request's logits were not numbers; the others of its batch went on."""


class EngineDown(ResourceError):
    """The engine takes no requests: it is closed, draining, or its device has failed."""


def is_device_fault(error: BaseException) -> bool:
    """Return whether the device can be used no more by this process.

    A GPU's memory running out is not such a fault: what was asked for can be asked for again.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return False
    if isinstance(error, torch.AcceleratorError):
        return True
    # What torch does not wrap, such as an error told by a library it calls.
    words = str(error)
    return isinstance(error, RuntimeError) and ("CUDA error" in words or "cudaError" in words)


def step_failed(error: BaseException) -> StepFailed:
    """Return what the requests of a batch are told when their step raised `error`."""
    return StepFailed(
        f"the step this request was in failed: {_said(error)}",
        code="OST5142",
        remedy="send the request again; if it fails again, report it with the log of the engine",
    )


def not_numbers() -> NotNumbers:
    """Return what a request is told whose logits were NaN or infinite."""
    return NotNumbers(
        "the model's logits were not numbers (NaN or infinite), so no token could be chosen",
        code="OST5143",
        remedy="check the weights, and float16 for numbers out of its range; bfloat16 has more",
    )


def engine_failed(error: BaseException) -> EngineDown:
    """Return what everyone is told after a fault of the device or of the loop itself."""
    what = "the device failed" if is_device_fault(error) else "the engine's loop ended"
    return EngineDown(
        f"{what} and the engine has stopped: {_said(error)}",
        code="OST5141",
        remedy="start a new process: after such a fault this one cannot use the device again"
        if is_device_fault(error)
        else "make a new engine, and report what the log says of the first error",
    )


def engine_closed(is_draining: bool) -> EngineDown:
    """Return the refusal of an engine that is shutting down."""
    return EngineDown(
        f"the engine is {'draining' if is_draining else 'closed'} and takes no new requests",
        code="OST5140",
        remedy="send the request to another engine, or make a new one",
    )


def in_another_process() -> EngineDown:
    """Return the refusal of an engine in a process that was forked from its own."""
    return EngineDown(
        "the engine was made in another process: a fork copies its memory and not its thread",
        code="OST5145",
        remedy="make an engine in this process, after the fork, or ask the first one over HTTP",
    )


def once_more(told: EngineDown) -> EngineDown:
    """Return a refusal that was told before, to be raised again.

    One object that is raised again and again would keep the frames of all those calls alive.
    """
    return EngineDown(str(told.args[0]), code=told.code, remedy=told.remedy)


def ends_engine(error: BaseException) -> bool:
    """Return whether nothing that is answered after `error` could be relied on."""
    return is_device_fault(error) or isinstance(error, WeightsLost)


def no_progress() -> InternalError:
    """Return the error for requests that wait while nothing runs and nothing can."""
    return InternalError(
        "requests wait, nothing runs, and none of them can begin",
        code="OST5144",
        remedy="report it with the text of the error and the engine's options",
    )


def _said(error: BaseException) -> str:
    """Return what an error says, and where the rest of it stands."""
    text = str(error.args[0]) if isinstance(error, OstinatoError) else str(error)
    lines = text.strip().splitlines()
    said = f"{lines[0]} " if lines else ""
    return f"{said}({type(error).__name__}; its traceback is in the log of ostinato.llm)"
