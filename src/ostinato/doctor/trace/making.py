"""From a timeline to evidence: steps, waits by line, copies, the profiled window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from ostinato.doctor.activity import Wait
from ostinato.doctor.evidence import Evidence, Span, Subject
from ostinato.doctor.finding import Place
from ostinato.doctor.graph_use import AttentionUse
from ostinato.doctor.trace.timeline import Timeline, WaitSeen

_MOST_STEPS = 4096


def evidence_of(
    timeline: Timeline,
    *,
    source: str,
    subject: Subject,
    attention: tuple[AttentionUse, ...] = (),
    has_frames: bool = False,
) -> Evidence:
    """Return what a trace comes to.

    Args:
        has_frames: Whether it was recorded with Python frames; else waits have no line.
    """
    profile = timeline.profile()
    steps = timeline.steps_of_evidence()
    problems = list(timeline.problems)
    if not timeline.has_device:
        problems.append(
            "nothing in the trace ran on a GPU: where there is one, record ProfilerActivity.CUDA"
        )
    if timeline.waits and not has_frames:
        problems.append("the trace has no Python frames, so waits have no line: with_stack=True")
    if not steps:
        problems.append("no steps are marked: call profiler.step() after each, or name the mark")
    looked = ["waits", "copies"]
    looked += ["steps"] if steps else []
    looked += ["profile"] if profile is not None else []
    looked += ["attention"] if attention else []
    begin, _ = timeline.window()
    return Evidence(
        source=source,
        subject=subject,
        collected=tuple(looked),
        step_name=_step_name(timeline),
        steps_seen=len(steps),
        steps=steps[-_MOST_STEPS:],
        waits=_waits(timeline),
        copies=timeline.copies(),
        profile=profile,
        attention=attention,
        spans=tuple(_moved(span, begin) for span in timeline.spans),
        problems=tuple(problems),
    )


def _step_name(timeline: Timeline) -> str:
    return timeline.steps[0][0].partition("#")[0] if timeline.steps else ""


def _moved(span: Span, begin: float) -> Span:
    return replace(span, began_us=span.began_us - begin)


def _waits(timeline: Timeline) -> tuple[Wait, ...]:
    """Add waits up by operation and line, and by whether they lie in a step."""
    groups: dict[tuple[str, Place | None], list[WaitSeen]] = {}
    begin, end = timeline.window()
    for seen in timeline.waits:
        # The profiler itself waits for the device when it stops.
        if not timeline.steps or begin <= seen.at_us <= end:
            groups.setdefault((seen.op, seen.place), []).append(seen)
    steps = sorted((at, at + us) for _, _, at, us in timeline.steps)
    waits = [_wait(op, place, seen, steps, timeline) for (op, place), seen in groups.items()]
    return tuple(sorted(waits, key=lambda wait: (-wait.us, -wait.count)))


def _wait(
    op: str,
    place: Place | None,
    seen: Sequence[WaitSeen],
    steps: list[tuple[float, float]],
    timeline: Timeline,
) -> Wait:
    in_step: dict[int, float] = {}
    inside = 0
    for each in seen:
        index = bisect_right(steps, (each.at_us, float("inf"))) - 1
        if index >= 0 and each.at_us <= steps[index][1]:
            inside += 1
            in_step[index] = in_step.get(index, 0.0) + each.us
    return Wait(
        op=op,
        kind=seen[0].kind,
        place=place,
        count=len(seen),
        inside=inside,
        between=len(seen) - inside if steps else 0,
        us=sum(each.us for each in seen),
        step_us=tuple(in_step[index] for index in sorted(in_step))[-_MOST_STEPS:],
        on_device=timeline.has_device,
    )
