"""What was recorded and replayed: by `graphed`, or by hand with torch.cuda.CUDAGraph.

`graphed` tells of itself through `instruments`, and its runners are asked for their reports at the
end. Graphs by hand are counted at the calls that capture and replay them, and autocast is watched
where it is switched in the middle of either.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch

from ostinato import instruments
from ostinato.doctor.collect.captured_inputs import InputsOfCapture
from ostinato.doctor.collect.gpu_use import has_gpu, is_capturing
from ostinato.doctor.collect.notebook import Notebook
from ostinato.doctor.collect.patches import Patches, quietly
from ostinato.doctor.collect.places import bare_place, is_own_code, place_of, users_frame
from ostinato.doctor.finding import Place
from ostinato.doctor.graph_use import AmpSwitch, GraphUse, RecordingUse, WordCount
from ostinato.graphs import Runner
from ostinato.instruments import Captured, Dropped, Instrument, RanEagerly, Replayed, Warned

_FIRST_LOOK = 32  # calls
_LOOK_EVERY = 16  # replays, for inputs that were freed


@dataclass(slots=True)
class _Told:
    """What `instruments` told of one runner."""

    calls: int = 0
    replays: int = 0
    captures: int = 0
    recaptures: int = 0
    build_us: float = 0.0
    eager: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    warned: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _ByHand:
    place: Place | None
    captures: int = 0
    replays: int = 0
    moved: int = 0
    inputs: InputsOfCapture | None = None


@dataclass(slots=True)
class _Switch:
    place: Place | None
    count: int = 0
    capturing: int = 0
    states: set[str] = field(default_factory=set)


class _Ear(Instrument):
    """Counts the runtime's events, and marks them in NVTX."""

    def __init__(self, told: dict[str, _Told], marks: bool) -> None:
        self._told = told
        self._marks = marks

    def _of(self, runner: str) -> _Told:
        return self._told.setdefault(runner, _Told())

    def captured(self, event: Captured) -> None:
        told = self._of(event.runner)
        told.captures += 1
        told.recaptures += event.recapture
        told.build_us += event.seconds * 1e6
        self._mark(f"record {event.runner}")

    def replayed(self, event: Replayed) -> None:
        told = self._of(event.runner)
        told.calls += 1
        told.replays += 1
        self._mark(f"replay {event.runner}")

    def ran_eagerly(self, event: RanEagerly) -> None:
        told = self._of(event.runner)
        told.calls += 1
        told.eager[event.reason] += 1

    def dropped(self, event: Dropped) -> None:
        self._of(event.runner).dropped[event.reason] += 1

    def warned(self, event: Warned) -> None:
        self._of(event.runner).warned[event.code] += 1

    def _mark(self, words: str) -> None:
        if self._marks:
            torch.cuda.nvtx.mark(words)


class Recordings:
    """Listens to the runtime, and counts graphs that are made by hand."""

    name = "graphs"

    def __init__(self, notebook: Notebook, patches: Patches, *, ranges: bool) -> None:
        self._notebook = notebook
        self._patches = patches
        self._told: dict[str, _Told] = {}
        self._ear = _Ear(self._told, ranges and has_gpu())
        self._by_hand: dict[int, _ByHand] = {}
        self._switches: dict[tuple[str, int], _Switch] = {}
        self._reports: dict[int, tuple[Any, Any]] = {}

    def start(self) -> None:
        """Listen, and stand before what captures and replays."""
        instruments.add(self._ear)
        self._patches.replace(Runner, "close", self._around_close)
        if has_gpu():
            self._patches.replace(torch.cuda.CUDAGraph, "capture_begin", self._around_capture)
            self._patches.replace(torch.cuda.CUDAGraph, "capture_end", self._around_end)
            self._patches.replace(torch.cuda.CUDAGraph, "replay", self._around_replay)
        self._patches.replace(torch.autocast, "__enter__", self._around_autocast)

    def stop(self) -> None:
        """Listen no more, and ask the runners that are alive."""
        instruments.remove(self._ear)
        if self._told:
            for runner in [found for found in gc.get_objects() if type(found) is Runner]:
                self._ask(runner)

    def _ask(self, runner: Any) -> None:
        known = self._reports.get(id(runner))
        report = runner.report()
        if known is None or report.graphs or report.name != known[1].name:
            self._reports[id(runner)] = (_place_of_function(runner.fn), report)

    def _around_close(self, original: Any) -> Any:
        def close(runner: Any) -> None:
            quietly(self._ask, runner)
            original(runner)

        return close

    def hear_call(self, runner: Any, calls: int) -> None:
        """Hear of a call of a runner; one that dies before the end is remembered by its calls."""
        if calls >= _FIRST_LOOK and calls & (calls - 1) == 0:
            self._ask(runner)

    def _around_capture(self, original: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            quietly(self._count_capture, graph, sys._getframe(1))
            result = original(graph, *args, **kwargs)
            found = self._by_hand.get(id(graph))
            if found is not None:
                found.inputs = InputsOfCapture()
                found.inputs.__enter__()  # type: ignore[no-untyped-call]
            return result

        return capture_begin

    def _around_end(self, original: Any) -> Any:
        def capture_end(graph: Any) -> Any:
            found = self._by_hand.get(id(graph))
            if found is not None and found.inputs is not None:
                quietly(found.inputs.__exit__, None, None, None)
            return original(graph)

        return capture_end

    def _around_replay(self, original: Any) -> Any:
        def replay(graph: Any) -> Any:
            found = self._by_hand.get(id(graph))
            if found is not None:
                found.replays += 1
                if found.replays % _LOOK_EVERY == 1 and found.inputs is not None:
                    found.moved += bool(found.inputs.freed())
            return original(graph)

        return replay

    def _count_capture(self, graph: Any, frame: FrameType) -> None:
        users = users_frame(frame)
        if users is None or not is_own_code(users.f_code.co_filename) or _is_ours(frame):
            return
        found = self._by_hand.setdefault(id(graph), _ByHand(place_of(users)))
        found.captures += 1

    def _around_autocast(self, original: Any) -> Any:
        def __enter__(autocast: Any) -> Any:  # noqa: N807
            if not self._notebook.here.quiet:
                quietly(self._note_autocast, autocast, sys._getframe(1))
            return original(autocast)

        return __enter__

    def _note_autocast(self, autocast: Any, frame: FrameType) -> None:
        if getattr(autocast, "_enabled", True) and not getattr(autocast, "_cache_enabled", True):
            return  # without a cache nothing outlives the recording
        capturing = is_capturing() or _is_being_recorded(frame)
        users = users_frame(frame)
        if users is None or not (capturing or self._notebook.here.inside):
            return
        place = bare_place(users)
        switch = self._switches.setdefault((place.path, place.line), _Switch(place))
        switch.count += 1
        switch.capturing += capturing
        enabled = getattr(autocast, "_enabled", True)
        dtype = str(getattr(autocast, "fast_dtype", "")).removeprefix("torch.")
        switch.states.add(dtype if enabled else "off")

    def fields(self) -> dict[str, Any]:
        """Return every callable that records, and every switch of autocast."""
        uses = [_graphed(place, report) for place, report in self._reports.values()]
        named = {use.name for use in uses}
        uses += [_told(name, told) for name, told in self._told.items() if name not in named]
        uses += [_hand_made(found) for found in self._by_hand.values()]
        switches = [
            AmpSwitch(s.place, s.count, s.capturing, tuple(sorted(s.states)))
            for s in self._switches.values()
        ]
        return {
            "graphs": tuple(self._with_events(use) for use in uses),
            "amp_switches": tuple(switches),
        }

    def _with_events(self, use: GraphUse) -> GraphUse:
        told = self._told.get(use.name)
        if told is None:
            return use
        return replace(
            use,
            calls=max(use.calls, told.calls),
            replays=max(use.replays, told.replays),
            captures=max(use.captures, told.captures),
            build_us=told.build_us,
            dropped=_counts(told.dropped),
            warnings=_counts(told.warned),
            recaptures=max(use.recaptures, told.recaptures),
        )


def _is_ours(frame: FrameType | None) -> bool:
    """Whether `graphed` is what captures: it tells of itself."""
    while frame is not None:
        if "ostinato/graphs/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _is_being_recorded(frame: FrameType | None) -> bool:
    """Whether a recorder of `graphed` runs the function, on any backend."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith(("ostinato/graphs/capture.py", "ostinato/graphs/observe.py")):
            return True
        frame = frame.f_back
    return False


def _counts(counter: Counter[str], details: dict[str, str] | None = None) -> tuple[WordCount, ...]:
    texts = details or {}
    return tuple(WordCount(w, n, texts.get(w, "")) for w, n in counter.most_common(32))


def _graphed(place: Place | None, report: Any) -> GraphUse:
    return GraphUse(
        name=report.name,
        place=place,
        calls=report.calls,
        replays=report.replays,
        captures=report.recordings,
        recaptures=report.recaptures,
        evictions=report.evictions,
        bytes=report.bytes,
        budget_bytes=report.budget_bytes,
        eager=_counts(Counter(report.reasons), report.details),
        recordings=tuple(_recording(graph) for graph in report.graphs),
        padded_rows=report.padded_rows,
    )


def _recording(graph: Any) -> RecordingUse:
    return RecordingUse(
        graph_id=graph.graph_id,
        signature=graph.signature,
        hits=graph.hits,
        bytes=graph.bytes,
        build_us=graph.build_seconds * 1e6,
        nodes=graph.nodes,
        eager_us=graph.eager_us,
        replay_us=graph.replay_us,
    )


def _place_of_function(fn: Any) -> Place | None:
    code = getattr(getattr(fn, "forward", fn), "__code__", None)
    if code is None:
        code = getattr(getattr(type(fn), "forward", None), "__code__", None)
    if code is None:
        return None
    return Place(code.co_filename, code.co_firstlineno, function=code.co_qualname)


def _told(name: str, told: _Told) -> GraphUse:
    return GraphUse(
        name=name,
        calls=told.calls,
        replays=told.replays,
        captures=told.captures,
        recaptures=told.recaptures,
        eager=_counts(told.eager),
    )


def _hand_made(found: _ByHand) -> GraphUse:
    return GraphUse(
        name="torch.cuda.CUDAGraph",
        place=found.place,
        kind="cuda-graph",
        calls=found.replays,
        replays=found.replays,
        captures=found.captures,
        recaptures=max(0, found.captures - 1),
        moved_inputs=found.moved,
    )
