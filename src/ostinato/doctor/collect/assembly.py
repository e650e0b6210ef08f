"""Which collectors a watch starts, in which order, and who tells whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.doctor.collect.allocator import Allocator
from ostinato.doctor.collect.attention import Attention
from ostinato.doctor.collect.collector import Collector
from ostinato.doctor.collect.compilation import Compilation
from ostinato.doctor.collect.copies import Copies
from ostinato.doctor.collect.event_loop import EventLoops
from ostinato.doctor.collect.gc_pauses import GcPauses
from ostinato.doctor.collect.gpu_use import has_gpu
from ostinato.doctor.collect.gradients import Gradients
from ostinato.doctor.collect.layout_copies import LayoutCopies
from ostinato.doctor.collect.locks import Locks
from ostinato.doctor.collect.machine import Machine
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches
from ostinato.doctor.collect.profiler import Profiler
from ostinato.doctor.collect.recordings import Recordings
from ostinato.doctor.collect.sampler import Sampler
from ostinato.doctor.collect.steps import Steps
from ostinato.doctor.collect.syncs import Syncs
from ostinato.doctor.collect.thread_pools import Threads

if TYPE_CHECKING:
    from ostinato.doctor.watching import Choices


def collectors(
    notebook: Notebook, patches: Patches, steps: Steps, choices: Choices
) -> list[Collector]:
    """Return the collectors of one watch, in the order in which they are started."""
    sampler = Sampler(notebook, patches=patches) if choices.sample else None
    syncs, gradients = Syncs(notebook, patches), Gradients(notebook, patches)
    locks, loops = Locks(notebook, patches), EventLoops(notebook, patches)
    attention = Attention(notebook, patches, trials=choices.trials)
    layout = LayoutCopies(notebook, patches, trials=choices.trials)
    recordings = Recordings(notebook, patches, ranges=choices.ranges)
    steps.hear_runner = recordings.hear_call
    steps.hear_on_loop = loops.hear_step
    attention.call_listeners.append(layout.hear_attention)
    syncs.read_listeners.append(gradients.hear_read)
    loops.after_callback.append(locks.after_callback)
    chosen: list[Collector] = [
        steps,
        syncs,
        gradients,
        attention,
        layout,
        Compilation(),
        recordings,
        locks,
        loops,
        GcPauses(notebook),
        Threads(sampler),
    ]
    if sampler is not None:
        sampler.listeners += [locks.look, loops.look]
        chosen.append(sampler)
    if choices.host:
        chosen.append(Machine())
    if has_gpu():
        chosen += _for_a_gpu(notebook, patches, steps, choices)
    return chosen


def _for_a_gpu(
    notebook: Notebook, patches: Patches, steps: Steps, choices: Choices
) -> list[Collector]:
    allocator = Allocator(notebook, settle=choices.whole_program)
    steps.listeners.append(allocator.step)
    chosen: list[Collector] = [Copies(notebook, patches), allocator]
    if choices.profile:
        profiler = Profiler(notebook)
        steps.listeners.append(profiler.step)
        chosen.append(profiler)
    return chosen
