"""Whether a call that stopped a check fails by itself: one real run of it, on the CPU.

A run on tensors without contents can stop for a reason of its own. So the factory is called again
with contents, and its call is made once without anybody watching. Only the same error at the same
line says that the call itself is wrong.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ostinato.doctor.check.ending import process_goes_on
from ostinato.doctor.check.interrupted import raise_if_interrupted
from ostinato.doctor.check.line import raised_line, words_at
from ostinato.doctor.check.other_threads import threads_fail_quietly
from ostinato.doctor.check.redirected import Redirected
from ostinato.doctor.check.target import Call, read_call
from ostinato.doctor.raised import text_of
from ostinato.errors import UsageError
from ostinato.graphs.reach import reach
from ostinato.graphs.tree import flatten

_LAYERS = os.path.dirname(nn.__file__) + os.sep
_MOST_BYTES = 1 << 30
"""Weights and inputs of a call that is run for real; a larger one is left alone."""


def refuse_if_it_fails_by_itself(
    factory: Callable[[], object], call: Call, stopped: BaseException
) -> None:
    """Make the call that `factory` returns for real, and raise if it fails as the check did.

    Args:
        call: The call as it was checked; tells how much memory a real one needs.
        stopped: What the checked run raised.

    Raises:
        UsageError: OST7054, the call raises by itself.
    """
    if _bytes(_tensors(call)) > _MOST_BYTES:
        return
    error = _raised(factory)
    if error is None or type(error) is not type(stopped):
        return
    at = _at(error)
    if at != _at(stopped) or (at is None and text_of(error) != text_of(stopped)):
        return
    raise UsageError(
        f"the call fails by itself, captured or not: {words_at(error)}",
        code="OST7054",
        remedy="let fn(*args, **kwargs) run eagerly with the example inputs first, then check it",
    ) from error


def _raised(factory: Callable[[], object]) -> BaseException | None:
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad(), Redirected():
            call = read_call(factory())
    except BaseException as error:  # noqa: BLE001 - it is the call that is asked about
        raise_if_interrupted(error)
        return None
    with process_goes_on() as asked, threads_fail_quietly():
        try:
            with warnings.catch_warnings(action="ignore"), torch.no_grad(), Redirected():
                call.fn(*call.args, **call.kwargs)
        except BaseException as error:  # noqa: BLE001 - whatever the call raises
            raise_if_interrupted(error)
            return asked[0] if asked else error
    return asked[0] if asked else None


def _at(error: BaseException) -> tuple[str, int] | None:
    """Return the user's line, or the layer's where torch's own layer is all that was called."""
    line = raised_line(error.__traceback__)
    if line is not None:
        return line.path, line.line
    frames = traceback.extract_tb(error.__traceback__)
    layers = [(f.filename, f.lineno or 0) for f in frames if f.filename.startswith(_LAYERS)]
    return layers[-1] if layers else None


def _tensors(call: Call) -> Iterable[Tensor]:
    given = flatten([call.args, call.kwargs])[0]
    return (each for each in (*given, *reach(call.fn).tensors()) if isinstance(each, Tensor))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
