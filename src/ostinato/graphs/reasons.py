"""Why a call ran eagerly, or a recording was dropped: the one list of reasons.

Every call that is not a replay carries one of these. The value is the stable, hyphenated word that
logs, metrics, `report()` and `ostinato explain WORD` use; the page behind each word lives in
`explanations/`. Adding a reason is a recipe in CONTRIBUTING.
"""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """One word per cause; see `ostinato explain WORD` for what it means and what to change."""

    # The runner has not got round to it, or was told not to.
    NOT_ADMITTED_YET = "not-admitted-yet"
    NEW_OBJECT = "new-object"
    BEING_RECORDED = "being-recorded"
    NESTED_CALL = "nested-call"
    EAGER_BACKEND = "eager-backend"
    CLOSED = "closed"
    INVALIDATED = "invalidated"

    # The call itself does not suit a recording.
    OUTSIDE_BUCKETS = "outside-buckets"
    EMPTY_BATCH = "empty-batch"
    REQUIRES_GRAD = "requires-grad"
    SEVERAL_DEVICES = "several-devices"
    UNSUPPORTED_INPUT = "unsupported-input"
    UNSUPPORTED_DEVICE = "unsupported-device"
    MODE_AROUND = "mode-around"

    # The function does something that a recording cannot hold.
    HOST_SYNC = "host-sync"
    HOST_COPY = "host-copy"
    DATA_DEPENDENT_SHAPE = "data-dependent-shape"
    PYTHON_SIDE_EFFECT = "python-side-effect"
    UNREGISTERED_GENERATOR = "unregistered-generator"
    COMPILED_INSIDE = "compiled-inside"
    UNSUPPORTED_OUTPUT = "unsupported-output"
    OUTPUT_SIZE_UNKNOWN = "output-size-unknown"
    PADDING_LEAKS = "padding-leaks"
    BRANCHES_ON_SIZE = "branches-on-size"
    CAPTURE_ERROR = "capture-error"

    # A recording existed, or could have, and was given up.
    OVER_BUDGET = "over-budget"
    UNPROFITABLE = "unprofitable"
    WEIGHTS_MOVED = "weights-moved"
    ATTRIBUTE_CHANGED = "attribute-changed"
    MISMATCH = "mismatch"
    REPLAY_ERROR = "replay-error"

    def __str__(self) -> str:
        return self.value


_REMEDIES: dict[Reason, str] = {
    Reason.NOT_ADMITTED_YET: "call it again, lower admit_after, or call warm() first",
    Reason.NEW_OBJECT: "pass the same object, or its tensors and plain values in a dict",
    Reason.BEING_RECORDED: "call it again: another thread is making this recording",
    Reason.NESTED_CALL: "nothing to do: the outer recording holds this call",
    Reason.EAGER_BACKEND: 'use backend="auto" to record',
    Reason.CLOSED: "make a new runner: this one was closed",
    Reason.INVALIDATED: "nothing to do: it is recorded anew",
    Reason.OUTSIDE_BUCKETS: "add a larger bucket, or split the call",
    Reason.EMPTY_BATCH: "skip the call when there is nothing to compute",
    Reason.REQUIRES_GRAD: "call it under torch.inference_mode() or torch.no_grad()",
    Reason.SEVERAL_DEVICES: "put all tensors on one device before the call",
    Reason.UNSUPPORTED_INPUT: "pass plain torch tensors and Python values",
    Reason.UNSUPPORTED_DEVICE: "move the tensors to a CUDA device or the CPU",
    Reason.MODE_AROUND: "leave the mode before the call, or close the runner while it is on",
    Reason.HOST_SYNC: "keep the value on the device, for example with torch.where",
    Reason.HOST_COPY: "create the tensor on the device, or pass it as an argument",
    Reason.DATA_DEPENDENT_SHAPE: "use a shape that does not depend on values: torch.where, a mask",
    Reason.PYTHON_SIDE_EFFECT: "return the value instead of storing it",
    Reason.UNREGISTERED_GENERATOR: "use a generator on the device that is recorded",
    Reason.COMPILED_INSIDE: "compile without CUDA graphs of its own, or leave compilation out",
    Reason.UNSUPPORTED_OUTPUT: "return plain tensors, Python values, and containers of them",
    Reason.OUTPUT_SIZE_UNKNOWN: 'declare it: Buckets(..., cut={"logits": 1})',
    Reason.PADDING_LEAKS: "mask the padding, or choose a fill that does not change the result",
    Reason.BRANCHES_ON_SIZE: "compute alike at every size, or declare a bucket on each side",
    Reason.CAPTURE_ERROR: "read the error and change the line it names",
    Reason.OVER_BUDGET: "raise the budget, or declare buckets so that fewer recordings are needed",
    Reason.UNPROFITABLE: "nothing to do: eager is as fast here",
    Reason.WEIGHTS_MOVED: "swap weights in place with update_weights()",
    Reason.ATTRIBUTE_CHANGED: "pass a value that changes as an argument",
    Reason.MISMATCH: "please report it with the text of the error",
    Reason.REPLAY_ERROR: "read the error; the recording is not used again",
}


def remedy(reason: Reason) -> str:
    """Return what to change, in one imperative sentence."""
    return _REMEDIES[reason]
