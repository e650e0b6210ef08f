"""Functions of torch and of Python that are replaced while somebody watches, and put back.

Some things leave no event that could be listened to, such as `bool(t)` on a CPU; the only way to
see them is to stand in between. A replacement calls the original with what it was given, whatever
happens to the recording beside it. TorchScript compiles what it finds under a name, so the
originals are put back while it does.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch.utils._device import _device_constructors

from ostinato.doctor.collect.sequence_slot import can_stay_no_sequence, stay_no_sequence

logger = logging.getLogger("ostinato")

_ABSENT = object()
_modes_of_functions = torch._C._len_torch_function_stack
_modes_of_dispatch = torch._C._len_torch_dispatch_stack


class Patches:
    """Replaces attributes, and puts back exactly what was there."""

    def __init__(self) -> None:
        # The first time, torch keeps for good which functions make tensors: let it keep its own.
        _device_constructors()
        self._lock = threading.RLock()
        self._replaced: list[tuple[Any, str, object, object]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Put `make(original)` in the place of `owner.name`; False if there is no such name."""
        original = getattr(owner, name, None)
        if original is None or (_is_index(owner, name) and not can_stay_no_sequence()):
            return False
        own = owner.__dict__.get(name, _ABSENT) if hasattr(owner, "__dict__") else original
        replacement = make(original)
        if isinstance(replacement, FunctionType):
            _pass_over(replacement)  # torch.compile passes over it, as over torch's own
        try:
            functools.update_wrapper(replacement, original)
        except (AttributeError, TypeError):
            replacement.__name__ = name
        _name_as_found(replacement, owner, name)
        if isinstance(replacement, staticmethod):
            replacement = replacement.__func__
        with self._lock:
            _set(owner, name, replacement)
            self._replaced.append((owner, name, own, replacement))
        return True

    def undo(self) -> None:
        """Put everything back, the latest first."""
        with self._lock:
            self.lift()
            self._replaced.clear()
            _forget_ours()

    def leave_child(self) -> None:
        """Put everything back in a forked child, whichever thread of the parent held the lock."""
        self._lock = threading.RLock()
        self.undo()

    def lift(self) -> None:
        """Put the originals back, and remember the replacements for `put_down`."""
        with self._lock:
            for owner, name, own, replacement in reversed(self._replaced):
                if getattr(owner, name, None) is not replacement:
                    continue  # somebody replaced it again: theirs calls ours, which calls through
                _set(owner, name, own)

    def put_down(self) -> None:
        """Replace again what `lift` put back."""
        with self._lock:
            for owner, name, _, replacement in self._replaced:
                _set(owner, name, replacement)


def _set(owner: Any, name: str, value: object) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
    if _is_index(owner, name):
        stay_no_sequence()


def _name_as_found(replacement: Any, owner: Any, name: str) -> None:
    """Let pickle find a replacement under the name it stands at, and elsewhere the original."""
    if isinstance(owner, ModuleType):
        replacement.__module__, replacement.__qualname__ = owner.__name__, name
    elif isinstance(owner, type):
        replacement.__module__ = owner.__module__
        replacement.__qualname__ = f"{owner.__qualname__}.{name}"


def _is_index(owner: Any, name: str) -> bool:
    return owner is torch.Tensor and name == "__getitem__"


def _forget_ours() -> None:
    """Have torch.compile look functions up anew: it may have met ours in their place."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    look_up = getattr(rules, "get_torch_obj_rule_map", None)
    if look_up is not None and hasattr(look_up, "cache_clear"):
        look_up.cache_clear()


def _pass_over(function: FunctionType) -> None:
    """Tell torch.compile not to compile a function of ours, without importing all of it."""
    try:
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
    except AttributeError:  # another torch: compiling ours costs time, and breaks nothing
        logger.debug("torch.compile may compile %s", function.__qualname__)


def without_patches(patches: Patches) -> Callable[[Any], Any]:
    """Return a maker of a function that runs the original with all of `patches` lifted."""

    def make(original: Any) -> Any:
        def lifted(*args: Any, **kwargs: Any) -> Any:
            patches.lift()
            try:
                return original(*args, **kwargs)
            finally:
                patches.put_down()

        return lifted

    return make


def quietly(record: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Call `record`, and log what it raises instead of raising it into the watched program.

    Within code that torch.compile runs, it would compile ours as well: it is told not to. And what
    is asked of a tensor here is no part of a recording that is under way, nor a reason to refuse
    one: modes of torch see nothing of it.
    """
    compiles = eval_frame.set_eval_frame(None)
    try:
        if _modes_of_functions() or _modes_of_dispatch():  # seldom, and leaving them takes 1 us
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                record(*args, **kwargs)
        else:
            record(*args, **kwargs)
    except Exception:
        logger.debug("the doctor could not record something", exc_info=True)
    finally:
        eval_frame.set_eval_frame(compiles)
