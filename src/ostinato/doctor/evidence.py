"""Everything that was recorded about a run, in plain values: what collectors write and probes read.

No torch, no device, no judgement: a probe must reach its finding from this alone, so that evidence
from a GPU can be saved, mailed and replayed on a laptop. None, or an empty tuple beside a False in
`collected`, means "not looked at"; an empty tuple that was looked at means "nothing there".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from ostinato.doctor.activity import Callable_, Copy, LayoutCopy, LostGradient, Profile, Step, Wait
from ostinato.doctor.graph_use import AmpSwitch, AttentionUse, CompileUse, GraphUse
from ostinato.doctor.host_evidence import HostEvidence
from ostinato.doctor.interpreter_use import GcPause, GcUse, Gil, LockHeld, LoopBlock, ThreadPools
from ostinato.doctor.memory_use import AllocatorUse
from ostinato.doctor.plain import from_plain, to_compact_json
from ostinato.errors import UsageError

VERSION = 1


class Ending(StrEnum):
    """How the watched program ended."""

    FINISHED = "finished"
    EXITED = "exited"
    RAISED = "raised"
    SIGNALLED = "signalled"
    STILL_RUNNING = "still-running"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Subject:
    """What was watched, where.

    Attributes:
        title: The command, the block or the trace file.
        device: "cuda" or "cpu": where its tensors live.
        accelerator: The GPU's name, and `capability` such as "9.0"; empty without one.
        seconds: How long it was watched.
        detail: The exception, the exit status or the signal, where it did not just finish.
    """

    title: str = ""
    device: str = "cpu"
    accelerator: str = ""
    capability: str = ""
    cpu: str = ""
    cores: int = 0
    torch: str = ""
    python: str = ""
    seconds: float = 0.0
    ending: Ending = Ending.FINISHED
    detail: str = ""
    exit_status: int = 0


@dataclass(frozen=True, slots=True)
class Stack:
    """One folded stack: frames outermost first, and how many samples had it.

    Attributes:
        waits_for_gil: Of the samples, those in which the thread wanted the GIL and had it not.
    """

    thread: str
    frames: tuple[str, ...]
    samples: int
    waits_for_gil: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time, for the timeline.

    Attributes:
        track: "step", "wait", "gc", "loop", "lock", "replay" or "kernel".
        began_us: Since the watch began.
    """

    track: str
    name: str
    began_us: float
    us: float


@dataclass(frozen=True, slots=True)
class Looks:
    """At how many steps the watch looked; it times all, and counts what it sees for the others.

    Attributes:
        steps: Those looked at, `of` all that ended, of every callable.
        one_of: Of how many it looked at one in the end.
        us: What the notes on them took.
    """

    steps: int
    of: int
    one_of: int
    us: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one run.

    Attributes:
        collected: Which collectors ran to their end: "steps", "waits", "profile", "graphs",
            "compile", "attention", "layout", "gil", "locks", "loop", "gc", "threads", "allocator",
            "host". A probe whose collector is missing says nothing, or abstains.
        step_name: The callable or the mark that makes the steps; empty without steps.
        steps: The latest ones, at most a few thousand; `steps_seen` counts all.
        whole_us: Time of all steps that were seen, each as long as `step_us` counts it; 0 where
            nobody added it up.
        in_calls_us: Time inside of all outermost calls and marked blocks, of every thread;
            `loop_us` that from the first one's begin to the last one's end.
        before_us, after_us: Time from the begin of the watch to the first step's begin, and from
            the last one's end to the end of the watch; None without steps, or where nobody knows.
        looks: At how many steps was looked; None where that is not so of a watch.
        problems: What could not be recorded and why, one sentence each.
    """

    version: int = VERSION
    source: str = "watch"
    subject: Subject = Subject()
    collected: tuple[str, ...] = ()
    step_name: str = ""
    steps_seen: int = 0
    steps: tuple[Step, ...] = ()
    whole_us: float = 0.0
    in_calls_us: float = 0.0
    loop_us: float = 0.0
    before_us: float | None = None
    after_us: float | None = None
    looks: Looks | None = None
    waits: tuple[Wait, ...] = ()
    copies: tuple[Copy, ...] = ()
    lost_gradients: tuple[LostGradient, ...] = ()
    callables: tuple[Callable_, ...] = ()
    layout_copies: tuple[LayoutCopy, ...] = ()
    profile: Profile | None = None
    graphs: tuple[GraphUse, ...] = ()
    amp_switches: tuple[AmpSwitch, ...] = ()
    compile: CompileUse | None = None
    attention: tuple[AttentionUse, ...] = ()
    gil: Gil | None = None
    locks: tuple[LockHeld, ...] = ()
    loop_blocks: tuple[LoopBlock, ...] = ()
    gc_pauses: tuple[GcPause, ...] = ()
    gc_use: GcUse | None = None
    threads: ThreadPools | None = None
    allocator: AllocatorUse | None = None
    host: HostEvidence | None = None
    stacks: tuple[Stack, ...] = ()
    spans: tuple[Span, ...] = ()
    problems: tuple[str, ...] = field(default=())

    def step_us(self) -> float | None:
        """Return the median time from one step to the next, or None without steps.

        Where most of them are followed by idle time, as the calls of a server are: that of a call.
        """
        turns = [step.turn_us for step in self.steps if step.turn_us is not None]
        if 2 * len(turns) >= len(self.steps) - 1 and turns:
            return median(turns)
        return self.call_us()

    def call_us(self) -> float | None:
        """Return the median time of a step's call alone, or None without steps."""
        return median(step.us for step in self.steps) if self.steps else None

    def cycle_us(self) -> float | None:
        """Return the median time from one call's begin to the next one's on the same thread."""
        last: dict[str, float] = {}
        cycles: list[float] = []
        for step in self.steps:
            if step.thread in last:
                cycles.append(step.began_us - last[step.thread])
            last[step.thread] = step.began_us
        return median(cycles) if cycles else None

    def mean_step_us(self) -> float | None:
        """Return the mean time of a step, or None without steps.

        A cost that is added up over the steps is a part of this one, and may be more than the
        median: a few long steps may hold most of it.
        """
        if self.whole_us and self.steps_seen:
            return self.whole_us / self.steps_seen
        times = [step.us if step.turn_us is None else step.turn_us for step in self.steps]
        return sum(times) / len(times) if times else None

    def outside(self) -> float | None:
        """Return the part of the time, once steps had begun, outside of any; None if unknown."""
        if not self.loop_us or self.steps_seen < 2:
            return None
        return max(0.0, 1.0 - self.in_calls_us / self.loop_us)

    def looked_at(self, collector: str) -> bool:
        """Return whether `collector` ran."""
        return collector in self.collected


def to_json(evidence: Evidence) -> str:
    """Return `evidence` as one JSON document."""
    return to_compact_json(evidence)


def from_json(text: str) -> Evidence:
    """Return the evidence that `to_json` wrote.

    Raises:
        UsageError: OST7020, it is no such document; OST7021, a later version wrote it.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the evidence is no JSON: {error}",
            code="OST7020",
            remedy="give the file that `ostinato doctor run --evidence FILE` wrote, unchanged",
        ) from error
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UsageError(
            f"the evidence has version {version}, and this Ostinato reads up to {VERSION}",
            code="OST7021",
            remedy="read it with the Ostinato that wrote it, or a later one",
        )
    return from_plain(Evidence, document, "evidence")
