"""Make one recording: observe, serve, warm up, record, check; leave the process as it was found.

The call that triggers a recording is answered by a plain eager run on the caller's own tensors. The
recording is made beside it, on copies. Whatever the extra runs changed (inputs, buffers, random
state, Python attributes) is put back, so that one call counts once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from ostinato.errors import CaptureError
from ostinato.graphs.aten_calls import storage_id
from ostinato.graphs.backends.base import Recording
from ostinato.graphs.buffers import StaticInputs
from ostinato.graphs.drawing import drawing_run
from ostinato.graphs.effects import Effects
from ostinato.graphs.graph import Graph
from ostinato.graphs.inline import recording_here
from ostinato.graphs.interrupts import run_interruptibly
from ostinato.graphs.job import Bench, Job, Made, Refused
from ostinato.graphs.observe import Observation, observe
from ostinato.graphs.observe_draws import SEEDED
from ostinato.graphs.padding import poison
from ostinato.graphs.proof import check, compared_sizes, fake_extents, hand_out_of, run_extents
from ostinato.graphs.reasons import Reason
from ostinato.graphs.refusing import (
    refuse_aliases,
    refuse_attributes,
    refuse_effects,
    refuse_gradients,
    refuse_hidden,
    refuse_other_layout,
    refuse_refusals,
)
from ostinato.graphs.signing import close_call
from ostinato.graphs.source_lines import raising_line
from ostinato.graphs.state import RandomState, TensorState
from ostinato.graphs.watch import Addresses

logger = logging.getLogger("ostinato")

_TIMED_RUNS = 3

# One recording at a time in the whole process: each saves and puts back state that all threads
# share, the default generators above all. Waiting for ever could deadlock with a callable that
# waits for another thread, so a call that waited this long runs eagerly.
_RECORDING = threading.RLock()
_LONGEST_WAIT_S = 5.0


def make(job: Job) -> Made:
    """Answer the call eagerly and try to record it.

    Raises:
        Exception: Whatever the callable raises when it answers the call.
    """
    if not _RECORDING.acquire(timeout=_LONGEST_WAIT_S):
        made = Made()
        made.take(Refused(Reason.BEING_RECORDED, "other recordings came first", is_final=False))
        made.result = _serve(job)
        return made
    try:
        return _make(job)
    finally:
        _RECORDING.release()


def _make(job: Job) -> Made:
    made = Made()
    started = time.perf_counter()
    try:
        with _short_of_memory_refused():
            bench = _lay_out(job, started)
            observation = _observe(bench)
            bench.before = _state(job, observation)
    except Exception as error:  # noqa: BLE001 - what is looked at before the call is answered
        _fail(made, job, error)
        if job.serve:
            made.result = _serve(job)
        return made
    made.result = _serve(job, bench)
    try:
        with _short_of_memory_refused():
            after = _state(job, observation)
            effects = Effects(job.watch.found)
    except Exception as error:  # noqa: BLE001 - the answer stands
        _fail(made, job, error)
        return made
    try:
        refuse_gradients(made.result)
        refuse_aliases(job, bench, observation)
        # Others that use the same memory must not run while this one is tried out.
        with nullcontext() if job.memory is None else job.memory.lock:
            made.graph = _record(bench, observation, made.result, effects)
    except Refused as refused:
        made.take(refused)
        # By another thread, if no run of the callable did it.
        moved = None if effects.found() else job.watch.changed()
        if moved is not None:
            made.take(Refused(moved.reason, moved.text, is_final=False, is_first=True))
    except Exception as error:  # noqa: BLE001 - the answer stands; a failure must not take it away
        _fail(made, job, error)
    finally:
        # What a recording reads may lie in a cache: only where there is none does that forget it.
        forget = (effects.undo_cached,) if made.graph is None else ()
        for undo in (effects.undo, *forget, *(state.restore for state in after)):
            try:
                undo()
            except Exception as error:  # noqa: BLE001 - of a user's object that cannot be set
                _fail(made, job, error)
    return made


def _fail(made: Made, job: Job, error: Exception) -> None:
    """Note why there is no recording: a refusal, or what nobody foresaw."""
    if isinstance(error, Refused):
        made.take(error)
        return
    logger.warning(
        "recording %s failed",
        job.graph_id,
        exc_info=error,
        extra={"fallback_reason": str(Reason.CAPTURE_ERROR), "graph_id": job.graph_id},
    )
    if made.graph is not None:
        made.graph.release()
        made.graph = None
    made.reason, made.detail = Reason.CAPTURE_ERROR, _words(error)


@contextmanager
def _short_of_memory_refused() -> Iterator[None]:
    """Copies may find no room where the run itself has enough: then it is not recorded."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # A failed host allocation is a plain RuntimeError in torch, known by its words alone.
        is_short = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if is_short or "allocate memory" in str(error):
            raise Refused(Reason.CAPTURE_ERROR, _words(error), is_final=False) from error
        raise


def _state(job: Job, observation: Observation) -> list[TensorState | RandomState]:
    return [
        TensorState([t for t in observation.written_externals if storage_id(t) not in job.scratch]),
        RandomState(job.device, observation.generators),
    ]


def _lay_out(job: Job, started: float) -> Bench:
    with torch.no_grad():
        inputs = StaticInputs(job.leaves, job.fits, job.signature.overlaps, job.backend.fill)
        for static, dim, start in inputs.padded_tails(job.leaves):
            poison(static, dim, start)  # what the policy does not overwrite must not matter
        inputs.fill(job.leaves)
    bench = Bench(job, inputs, started)
    bench.saved_inputs = inputs.save()
    return bench


def _observe(bench: Bench) -> Observation:
    """Run the step once under observation; refuse what a recording could not hold."""
    job = bench.job
    refuse_effects(job, Effects.foreseen(job.watch.found))
    refuse_attributes(job)
    refuse_hidden(job)
    effects = Effects(job.watch.found, _by_path(bench))
    random = RandomState(job.device)
    try:
        with recording_here(), _no_autocast_cache():
            observation = _observed(bench)
            if _has_seeded(observation):
                # It may have been another thread; a step that seeds does it again.
                observation.restore()
                bench.saved_inputs.restore()
                observation = _observed(bench)
    except Exception as error:
        # The caller's own call is still to come; it raises this in the caller's own words, or not.
        padded = bench.inputs.told_of_padding(job.leaves, job.signature.structure.paths)
        detail = f"{_words(error)}; {padded}" if padded else _words(error)
        raise Refused(
            Reason.CAPTURE_ERROR, detail, is_final=False, is_first=not job.ran_before
        ) from error
    finally:
        found = effects.found()
        effects.undo()
        effects.undo_cached()  # the call itself is still to be answered
        random.restore()
    observation.restore()
    with torch.no_grad():
        bench.saved_inputs.restore()
    refuse_refusals(observation)
    changed = bench.changed_containers()
    if changed:
        raise Refused(Reason.PYTHON_SIDE_EFFECT, changed)
    returned = bench.returned_container(observation.result)
    if returned:
        raise Refused(Reason.UNSUPPORTED_OUTPUT, returned)
    escapes = observation.escapes
    refuse_effects(job, found, escapes[0].where if escapes else None)
    return observation


def _by_path(bench: Bench) -> dict[str, Tensor]:
    paths = bench.job.signature.structure.paths
    given = zip(bench.inputs.leaf_of, bench.inputs.tensors, strict=True)
    return {paths[leaf]: tensor for leaf, tensor in given}


def _observed(bench: Bench) -> Observation:
    found = bench.job.watch.found
    return observe(
        bench.step,
        bench.inputs.tensors,
        device=bench.job.device,
        generators=_private_generators(bench.job),
        scratch=bench.job.scratch,
        names=None if found.reads_any_name else found.names | found.called,
    )


def _has_seeded(observation: Observation) -> bool:
    return any(refusal.detail == SEEDED for refusal in observation.refusals)


def _private_generators(job: Job) -> list[torch.Generator]:
    given = [leaf for leaf in job.leaves if isinstance(leaf, torch.Generator)]
    return [*job.watch.found.generators, *given]


def _serve(job: Job, bench: Bench | None = None) -> object:
    """Answer the call on the caller's own tensors; for `warm`, on copies."""
    started = time.perf_counter()
    if job.serve:
        args, kwargs = job.call
        with drawing_run():
            result = run_interruptibly(job.fn, args, kwargs)
    elif bench is None:
        return None
    else:
        result = _dry_run(bench)
    if bench is not None:
        bench.eager_us = (time.perf_counter() - started) * 1e6
    return result


def _dry_run(bench: Bench) -> object:
    """Run eagerly on copies of the caller's tensors and put the state back."""
    copies = StaticInputs(
        bench.job.leaves, (), bench.job.signature.overlaps, bench.job.backend.fill
    )
    with torch.no_grad():
        copies.fill(bench.job.leaves)
    args, kwargs = close_call(bench.job.signature.structure, copies.leaves)
    try:
        with recording_here():
            return run_interruptibly(bench.job.fn, args, kwargs)
    finally:
        for state in bench.before:
            state.restore()


def _record(bench: Bench, observation: Observation, result: object, effects: Effects) -> Graph:
    job = bench.job
    recording: Recording | None = None
    try:
        with recording_here(), _no_autocast_cache(), _without_gradients(job):
            extents, unlike_at_one = fake_extents(bench)
            recording = job.backend.record(
                bench.step,
                inputs=bench.inputs.tensors,
                device=job.device,
                warmups=job.warmups,
                observation=observation,
                restore=bench.restore,
                memory=job.memory,
            )
            refuse_other_layout(job, recording, result)
            extents = run_extents(job, extents, recording.result, result)
            hand_out = hand_out_of(bench, recording, observation, extents)
            written = check(bench, recording, hand_out, observation, result)
            eager_us, replay_us = _times(bench, recording)
        refuse_effects(job, effects.found())
    except CaptureError as error:
        if recording is not None:
            recording.release()
        reason = Reason(error.reason) if error.reason else Reason.CAPTURE_ERROR
        # An error of the callable's own may not come again; what it does will.
        is_final = reason is not Reason.CAPTURE_ERROR
        raise Refused(reason, str(error.args[0]), is_final=is_final) from error
    except BaseException:
        if recording is not None:
            recording.release()
        raise
    written_externals = observation.written_externals
    return Graph(
        graph_id=job.graph_id,
        signature=job.signature,
        inputs=bench.inputs,
        recording=recording,
        hand_out=hand_out,
        addresses=Addresses(observation.externals),
        written_inputs=written,
        written_externals=written_externals,
        generators=observation.generators,
        draws=observation.draws,
        bytes=recording.bytes + bench.inputs.nbytes,
        build_seconds=time.perf_counter() - bench.started,
        eager_us=eager_us,
        replay_us=replay_us,
        padding=compared_sizes(job, observation, writes=bool(written or written_externals)),
        unlike_at_one=unlike_at_one,
        scratch=job.scratch,
        lock=threading.RLock() if job.memory is None else job.memory.lock,
    )


@contextmanager
def _no_autocast_cache() -> Iterator[None]:
    """Cast weights in the run itself: a cached copy would be a weight that nobody updates."""
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


def _without_gradients(job: Job) -> AbstractContextManager[object]:
    return torch.no_grad() if job.signature.mode.grad else nullcontext()


def _times(bench: Bench, recording: Recording) -> tuple[float, float]:
    """Return the time of one eager run and of one replay, in microseconds."""
    job = bench.job

    def timed(run: Callable[[], object], repeats: int) -> float:
        return job.backend.time_us(run, before=bench.restore, device=job.device, repeats=repeats)

    if not job.measure:
        return bench.eager_us, timed(recording.replay, 1)
    return timed(bench.step, _TIMED_RUNS), timed(recording.replay, _TIMED_RUNS)


def _words(error: BaseException) -> str:
    line = raising_line(error.__traceback__)
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return f"{text}, at {line}" if line else text
