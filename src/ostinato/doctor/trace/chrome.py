"""Read torch.profiler's Chrome trace into evidence, in two passes of bounded memory.

The first pass takes what the host did: steps, launches, waits, and calls of torch inside which a
wait has a meaning. The second takes what ran on the device, which graph launches by then can be
told apart, and looks for the line of each wait among the Python frames.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ostinato.doctor.evidence import Evidence, Subject
from ostinato.doctor.trace.attention import AttentionCounts
from ostinato.doctor.trace.calls import (
    ATTENTION,
    READS,
    is_copy_call,
    is_graph_launch,
    is_launch,
    is_wait,
)
from ostinato.doctor.trace.frames import Frames
from ostinato.doctor.trace.making import evidence_of
from ostinato.doctor.trace.reads import CopyCall, Mark, Sync, kept, waits_of
from ostinato.doctor.trace.stream import ChromeStream
from ostinato.doctor.trace.timeline import Timeline
from ostinato.errors import UsageError

_STEPS = ("ProfilerStep#", "step ")
_MOST_MARKS = 1 << 20
_DIRECTIONS = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d"}


def read_chrome(path: Path, step: str) -> Evidence:
    """Return the evidence of a Chrome trace.

    Raises:
        UsageError: OST7061, the file holds no events at all, or none that is whole.
    """
    stream = ChromeStream(path)
    host, whole = _HostSide(step), 0
    for event in stream:
        whole += _is_whole(event)
        host.take(event)
    damage = stream.damage
    if not stream.is_trace or not stream.events:
        missing = "it holds no events" if stream.is_trace else "it holds no traceEvents"
        raise UsageError(
            f"{path} is no trace: {damage or missing}",
            code="OST7061",
            remedy="give the file that torch.profiler's export_chrome_trace wrote",
        )
    if not whole:
        raise UsageError(
            f"{path} is damaged: not one of its events is whole ({stream.events} read); an event "
            'needs a kind in "ph", and one with a length numbers in "ts" and "dur"',
            code="OST7061",
            remedy="record the trace anew, and give the file as torch.profiler wrote it",
        )
    broken = stream.events - whole
    device = _DeviceSide(host.timeline, host.copy_calls)
    waits = waits_of(host.marks, host.syncs, host.copy_calls)
    frames = Frames([wait.seen for wait in waits])
    for event in stream:
        device.take(event)
        if event.get("cat") == "python_function":
            frames.take(event)
    if damage:
        host.timeline.problems.append(f"the trace is damaged: {damage}; what came before is used")
    if broken:
        words = f"{broken} of {stream.events} events are malformed, and were passed over"
        host.timeline.problems.append(f"the trace is damaged: {words}")
    if host.dropped:
        host.timeline.problems.append(f"{host.dropped} calls of torch beyond {_MOST_MARKS} unread")
    host.timeline.waits = kept(waits, device.directions, host.timeline.has_device)
    return evidence_of(
        host.timeline,
        source="trace",
        subject=_subject(path, stream.head, host.timeline),
        attention=host.attention.uses(stream.head, host.timeline.has_device),
        has_frames=bool(stream.head.get("with_stack")) or frames.seen,
    )


class _HostSide:
    """What the first pass keeps."""

    def __init__(self, step: str) -> None:
        self.timeline = Timeline()
        self.marks: list[Mark] = []
        self.syncs: list[Sync] = []
        self.copy_calls: list[CopyCall] = []
        self.attention = AttentionCounts()
        self.dropped = 0
        self._steps = (step,) if step else _STEPS
        self._take: dict[str, Callable[[str, str, float, float, dict[str, Any]], None]] = {
            "cpu_op": self._op,
            "cuda_runtime": self._call,
            "cuda_driver": self._call,
            "user_annotation": self._annotation,
        }

    def take(self, event: dict[str, Any]) -> None:
        """Take one event; what is no stretch of time, or odd, is passed over."""
        take = self._take.get(str(event.get("cat", "")).lower())
        if take is None or event.get("ph") != "X":
            return
        parts = _stretch(event)
        if parts is not None:
            take(*parts)

    def _annotation(self, name: str, thread: str, at: float, us: float, _: dict[str, Any]) -> None:
        if name.startswith(self._steps):
            self.timeline.add_step(name, thread, at, us)

    def _call(self, name: str, thread: str, at: float, us: float, args: dict[str, Any]) -> None:
        correlation = _whole(args.get("correlation"))
        if is_graph_launch(name):
            self.timeline.add_launch(at, us, correlation, of_graph=True)
        elif is_launch(name):
            self.timeline.add_launch(at, us, correlation, of_graph=False)
        if is_copy_call(name):
            self._keep(self.copy_calls, CopyCall(thread, at, correlation))
        if is_wait(name):
            self._keep(self.syncs, Sync(thread, at, us, name))

    def _op(self, name: str, thread: str, at: float, us: float, args: dict[str, Any]) -> None:
        if name in READS:
            self._keep(self.marks, Mark(thread, at, us, name))
        elif name in ATTENTION:
            self.attention.add(name, us, args)

    def _keep(self, into: list[Any], item: object) -> None:
        if len(into) < _MOST_MARKS:
            into.append(item)
        else:
            self.dropped += 1


class _DeviceSide:
    """What the second pass keeps."""

    def __init__(self, timeline: Timeline, copy_calls: list[CopyCall]) -> None:
        self._timeline = timeline
        self._wanted = {call.correlation for call in copy_calls}
        self.directions: dict[int, str] = {}

    def take(self, event: dict[str, Any]) -> None:
        category = str(event.get("cat", "")).lower()
        if category not in ("kernel", "gpu_memcpy", "gpu_memset"):
            return
        parts = _stretch(event)
        if parts is None:
            return
        name, _, at, us, args = parts
        correlation = _whole(args.get("correlation"))
        if category != "gpu_memcpy":
            self._timeline.add_kernel(name, at, us, correlation)
            return
        direction = next((way for word, way in _DIRECTIONS.items() if word in name), "other")
        if correlation in self._wanted:
            self.directions[correlation] = direction
        pinned = False if "Pageable" in name else True if "Pinned" in name else None
        self._timeline.add_copy(direction, at, us, _whole(args.get("bytes")), pinned=pinned)


def _stretch(
    event: dict[str, Any],
) -> tuple[str, str, float, float, dict[str, Any]] | None:
    """Return name, thread, begin, length and arguments of an event, if it has all of them."""
    at, us, args = event.get("ts"), event.get("dur"), event.get("args")
    if not _is_time(at) or not _is_time(us):
        return None
    thread = f"{event.get('pid')}/{event.get('tid')}"
    given = args if isinstance(args, dict) else {}
    return str(event.get("name", "")), thread, float(at), max(0.0, float(us)), given  # type: ignore[arg-type]


def _is_whole(event: dict[str, Any]) -> bool:
    """Whether an event has what its kind needs; what is odd in another way is passed over too."""
    kind = event.get("ph")
    if kind != "X":
        return isinstance(kind, str)
    return _is_time(event.get("ts")) and _is_time(event.get("dur"))


def _is_time(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(float(value)) < 1e18  # type: ignore[arg-type]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else -1


def _subject(path: Path, head: dict[str, Any], timeline: Timeline) -> Subject:
    found = head.get("deviceProperties")
    devices = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    first = devices[0] if devices else {}
    capability = ""
    if "computeMajor" in first:
        capability = f"{first.get('computeMajor')}.{first.get('computeMinor', 0)}"
    begin, end = timeline.window()
    return Subject(
        title=str(path),
        device="cuda" if timeline.has_device else "cpu",
        accelerator=str(first.get("name", "")) if timeline.has_device else "",
        capability=capability,
        seconds=max(0.0, end - begin) / 1e6 if end > begin else 0.0,
    )
