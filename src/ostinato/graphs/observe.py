"""Watch one eager run of a step: what it touches, and what a recording of it could not hold.

The run is an ordinary eager run with an ordinary result. Nothing is stopped: a call that a
recording cannot hold is let through and noted with the user's line. The runner observes a step
before it asks a backend to record it, on a CPU and on a GPU alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ostinato.graphs.interrupts import signals_wait
from ostinato.graphs.observe_calls import CallWatcher
from ostinato.graphs.observe_capturing import as_if_capturing
from ostinato.graphs.observe_compiled import compiled_code_runs_eagerly
from ostinato.graphs.observe_draws import SEEDED, STATE_IS_ASKED, TurnedBack, generator_states
from ostinato.graphs.observe_fast_paths import watched_as_if_plain
from ostinato.graphs.observe_host import HostWatcher, hidden_calls_are_seen
from ostinato.graphs.observe_journal import Journal
from ostinato.graphs.observe_notes import Escape, Refusal
from ostinato.graphs.observe_python import PythonWatcher, may_act, python_is_watched
from ostinato.graphs.seeds import SeedWatch, default_generators
from ostinato.graphs.tree import flatten

__all__ = ["Escape", "Observation", "Refusal", "observe"]


@dataclass(slots=True)
class Observation:
    """What one eager run of a step did.

    Attributes:
        result: What the step returned.
        refusals: What a recording could not hold, in the order seen.
        ops: Compute calls; views are not counted.
        externals: Tensors used that the run neither created nor was given, each object once.
        written_externals: Those of them that the run wrote.
        written_inputs: Indices into `inputs` of the tensors whose memory the run wrote.
        generators: Private generators that the run drew from.
        draws: Whether any random number was drawn.
        devices: Of every tensor that a compute call touched; numbers in 0-dim CPU tensors excluded.
        has_collective: Whether processes talked to each other, as in an all-reduce.
        escapes: Tensors made by the run that outlive it without being part of the result.
    """

    result: object
    refusals: list[Refusal]
    ops: int
    externals: list[Tensor]
    written_externals: list[Tensor]
    written_inputs: frozenset[int]
    generators: list[torch.Generator]
    draws: bool
    devices: frozenset[torch.device]
    has_collective: bool
    escapes: list[Escape]
    _journal: Journal = field(repr=False)

    def restore(self) -> None:
        """Put the content of written externals back as it was before the run."""
        self._journal.undo()


@signals_wait()
def observe(
    step: Callable[[], object],
    inputs: Sequence[Tensor],
    *,
    device: torch.device,
    generators: Sequence[torch.Generator] = (),
    scratch: frozenset[int] = frozenset(),
    names: AbstractSet[str] | None = None,
) -> Observation:
    """Run `step` once, eagerly, and return its result with what was seen.

    Args:
        inputs: The tensors that `step` is given; everything else that it reads is external.
        device: Where the step is meant to run; decides what counts as a read by the host.
        generators: Private generators that the step may seed.
        scratch: Memory (by `storage_id`) that need not be put back.
        names: What the step's code may read by name; None where that is unknown.

    Raises:
        Exception: Whatever `step` raises; what it wrote until then is put back.

    Capture:
        Unsafe: the run is an eager run. Compiled code inside it runs eagerly meanwhile.
    """
    drawn_from = [*default_generators(device), *generators]
    seeds, states = SeedWatch(drawn_from), TurnedBack(drawn_from)
    calls = CallWatcher(inputs, device, seeds, states, scratch)
    python = PythonWatcher(calls.notes)
    seeds.begin()
    states.look()  # a mark is no draw
    before = generator_states(device)
    try:
        with ExitStack() as watching:
            watching.enter_context(compiled_code_runs_eagerly())
            watching.enter_context(as_if_capturing())
            watching.enter_context(watched_as_if_plain())
            watching.enter_context(hidden_calls_are_seen(calls.notes, device))
            watching.enter_context(HostWatcher(calls.notes, device, inputs, calls.journal))
            watching.enter_context(calls)
            if names is None or may_act(names):
                watching.enter_context(python_is_watched(python))
            result = step()
        drew = calls.may_draw and generator_states(device) != before
        if seeds.has_seen_one:
            calls.notes.refuse_generator("torch.manual_seed", SEEDED, has_line=False)
        if states.look():
            calls.notes.refuse_generator("set_state", STATE_IS_ASKED, has_line=False)
        if not calls.notes.refusals:
            python.warn()
    except BaseException:
        calls.journal.undo()  # half a run must not stay behind, nor an interrupted one
        raise
    finally:
        seeds.end()
    return Observation(
        result=result,
        refusals=calls.notes.refusals,
        ops=calls.ops,
        externals=calls.externals,
        written_externals=calls.written_externals,
        written_inputs=frozenset(calls.written_inputs),
        generators=calls.generators,
        draws=drew or bool(calls.generators),
        devices=frozenset(calls.devices),
        has_collective=calls.has_collective,
        escapes=calls.escapes(flatten(result)[0]),
        _journal=calls.journal,
    )
