"""Check whether a call can be captured as a CUDA graph, on a machine without a GPU.

The factory is called while a GPU is pretended, so that `.cuda()` and `device="cuda"` make tensors
without contents. The call is then run under the observers that the runtime itself uses before it
records on a GPU: what they refuse there they refuse here, with the same words. Reads by the host
are answered with assumed values so that the run can go on; where a condition was read, the call is
run once more with the other answer.
"""

from __future__ import annotations

import logging
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from ostinato.doctor.check.assumed import Assumed
from ostinato.doctor.check.collected import Collected
from ostinato.doctor.check.eager import refuse_if_it_fails_by_itself
from ostinato.doctor.check.ending import process_goes_on
from ostinato.doctor.check.interrupted import raise_if_interrupted
from ostinato.doctor.check.line import words_at
from ostinato.doctor.check.once import GPU, run_once
from ostinato.doctor.check.placing import Placing
from ostinato.doctor.check.pretended import PretendedMode
from ostinato.doctor.check.pretended_cuda import pretended_cuda
from ostinato.doctor.check.pretended_files import files_are_read_on_the_host
from ostinato.doctor.check.target import Call, read_call
from ostinato.doctor.check.verdict import Checked
from ostinato.errors import UsageError
from ostinato.graphs import Runner
from ostinato.graphs.reach import reach
from ostinato.graphs.tree import flatten

_FAKES = "torch._subclasses.fake_tensor"


def check(factory: Callable[[], object], *, target: str = "", gpus: int = 1) -> Checked:
    """Say whether the call that `factory` makes can be captured, and what stands in the way.

    Holds for inference: the call runs under `torch.no_grad()`. Nothing is computed on a device, and
    no weight needs memory, unless the factory reads values, and then it runs once on the CPU.

    Args:
        factory: Returns (callable, args) or (callable, args, kwargs); see `target.py`. It may put
            things on "cuda"; where it puts nothing there, all of it is taken to lie there.
        target: What to call it in the result.
        gpus: How many GPUs to pretend.

    Raises:
        UsageError: OST7051, the factory returns something else; OST7052, it raises; OST7054, the
            call that it returns raises by itself, captured or not.
    """
    with process_goes_on(), pretended_cuda(gpus) as current, _silent(_FAKES):
        mode = PretendedMode()
        call, onto = _made(factory, mode, current)
        fn = call.fn.fn if isinstance(call.fn, Runner) else call.fn
        call = Call(fn, call.args, call.kwargs)
        collected = Collected(target or getattr(factory, "__qualname__", "the call"), GPU, gpus)
        for condition in (True, False):
            read = run_once(call, mode, current, onto, collected, condition=condition)
            if not read:
                break
        if (stopped := collected.stopped_by_itself) is not None:
            refuse_if_it_fails_by_itself(factory, call, stopped)
        return collected.checked()


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a logger quiet: what fails is raised too, and reported as a gap."""
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _made(
    factory: Callable[[], object], mode: PretendedMode, current: Callable[[], int]
) -> tuple[Call, torch.device | None]:
    """Run the factory; return the call, and where real tensors in it are taken to lie."""
    first: BaseException | None = None
    try:
        call = _pretending(factory, mode, current)
        # What a factory that names no GPU made is taken to lie there, all of it.
        return call, None if _is_on_gpu(call) else GPU
    except UsageError:
        raise
    except BaseException as error:  # noqa: BLE001 - it may read values, and fake tensors have none
        raise_if_interrupted(error)
        first = error
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad(), _on_the_host():
            return read_call(factory()), GPU
    except UsageError:
        raise
    except BaseException as second:
        raise_if_interrupted(second)
        raise _unmade(factory, second, first) from second


def _unmade(
    factory: Callable[[], object], error: BaseException, without_values: BaseException
) -> UsageError:
    """Say what a factory raised, where, and what it raised without values if that is another."""
    said, other = words_at(error), words_at(without_values)
    remedy = f"let the factory run by itself first{_command(factory)}"
    if said != other:
        said += f"; on tensors without values it raised {other}"
        remedy = "make it run on a machine without a GPU, or let it take no values from tensors"
    return UsageError(f"the factory raised {said}", code="OST7052", remedy=remedy)


def _command(factory: Callable[[], object]) -> str:
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "<>")
    if not module or "<" in name:  # made within a function: no command reaches it
        return ""
    return ": python -c " + shlex.quote(f"import {module}; {module}.{name}()")


def _pretending(
    factory: Callable[[], object], mode: PretendedMode, current: Callable[[], int]
) -> Call:
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(torch.no_grad())
        stack.enter_context(files_are_read_on_the_host())
        stack.enter_context(mode)
        stack.enter_context(Placing(mode, Assumed(mode, is_lenient=False), current))
        return read_call(factory())


@contextmanager
def _on_the_host() -> Iterator[None]:
    """Let a factory that names "cuda" make real tensors on the CPU."""
    from ostinato.doctor.check.redirected import Redirected

    with Redirected():
        yield


def _is_on_gpu(call: Call) -> bool:
    given = flatten([call.args, call.kwargs])[0]
    held: Any = reach(call.fn).tensors()
    return any(isinstance(each, Tensor) and each.device.type == "cuda" for each in (*given, *held))
