"""What a trace says so far, in bounded memory, and the profile that it comes to.

Both readers fill it, the calls of the host before what ran on the device. Graph launches are what
needs care: one call of the host starts many kernels, which are as much work as if they had been
launched one by one. So time on the device comes from the kernels themselves, wherever they came
from; a trace that shows a graph's launch but none of its kernels cannot say how long the device
idled, and then no idle time is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ostinato.doctor.activity import Copy, KernelUse, Profile, Step, WaitKind
from ostinato.doctor.evidence import Span
from ostinato.doctor.finding import Place
from ostinato.doctor.trace.intervals import Intervals

_SHORT_US = 5.0
_TOP = 20
_MOST_SPANS = 2000
_MOST_CALLS = 1 << 20
_BLIND = 0.1
"""Of the graph launches, those without kernels from which on idle time is not reported."""


@dataclass(slots=True)
class WaitSeen:
    """One wait of the host.

    Attributes:
        us: Time in the synchronising call; 0 for a read on a CPU, which waits for nothing.
    """

    thread: str
    at_us: float
    us: float
    kind: WaitKind
    op: str
    place: Place | None = None
    place_at_us: float = float("-inf")


@dataclass(slots=True)
class _KernelKind:
    count: int = 0
    us: float = 0.0
    in_graphs: int = 0
    short: int = 0
    short_us: float = 0.0


@dataclass(slots=True)
class _CopyKind:
    count: int = 0
    bytes: int = 0
    us: float = 0.0


@dataclass(slots=True)
class Timeline:
    """Everything that was counted.

    Attributes:
        steps: (name, thread, begin, duration) of every mark of a step.
        waits: Filled by the reader.
        problems: What could not be read.
    """

    busy: Intervals = field(default_factory=Intervals)
    steps: list[tuple[str, str, float, float]] = field(default_factory=list)
    waits: list[WaitSeen] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    launches: int = 0
    graph_launches: int = 0
    launch_us: float = 0.0
    first_us: float = float("inf")
    last_us: float = float("-inf")
    whole_graphs: int = 0
    _kernels: dict[str, _KernelKind] = field(default_factory=dict)
    _copies: dict[tuple[str, bool | None], _CopyKind] = field(default_factory=dict)
    _graph_ids: set[int] = field(default_factory=set)
    _filled_ids: set[int] = field(default_factory=set)

    def add_launch(self, at_us: float, us: float, correlation: int, *, of_graph: bool) -> None:
        """Add a call that starts a kernel or a graph."""
        self._meet(at_us, at_us + us)
        self.launches += 1
        self.launch_us += us
        if of_graph:
            self.graph_launches += 1
            if len(self._graph_ids) < _MOST_CALLS:
                self._graph_ids.add(correlation)
            self._span("replay", "graph launch", at_us, us)

    def add_kernel(self, name: str, at_us: float, us: float, correlation: int) -> None:
        """Add a kernel. Its graph's launch, if it has one, was added before."""
        self._meet(at_us, at_us + us)
        self.busy.add(at_us, at_us + us)
        kind = self._kernels.setdefault(name, _KernelKind())
        kind.count += 1
        kind.us += us
        if us < _SHORT_US:
            kind.short += 1
            kind.short_us += us
        if correlation in self._graph_ids:
            kind.in_graphs += 1
            self._filled_ids.add(correlation)
        self._span("kernel", name[:80], at_us, us)

    def add_whole_graph(self, at_us: float, us: float, correlation: int) -> None:
        """Add a graph that was traced as one piece, without its kernels."""
        self._meet(at_us, at_us + us)
        self.busy.add(at_us, at_us + us)
        self.whole_graphs += 1
        self._filled_ids.add(correlation)
        self._span("kernel", "a graph, traced as one piece", at_us, us)

    def add_copy(
        self, direction: str, at_us: float, us: float, nbytes: int, *, pinned: bool | None
    ) -> None:
        """Add a copy by a copy engine."""
        self._meet(at_us, at_us + us)
        self.busy.add(at_us, at_us + us)
        kind = self._copies.setdefault((direction, pinned), _CopyKind())
        kind.count += 1
        kind.bytes += nbytes
        kind.us += us

    def add_step(self, name: str, thread: str, at_us: float, us: float) -> None:
        """Add the mark of one step."""
        self.steps.append((name, thread, at_us, us))
        self._span("step", name, at_us, us)

    @property
    def has_device(self) -> bool:
        """Whether anything ran on a GPU."""
        return bool(self._kernels or self._copies or self.whole_graphs)

    def profile(self) -> Profile | None:
        """Return the window of steps, or of everything; None without a device, or blind to it."""
        if not self.has_device:
            return None
        blind = len(self._graph_ids - self._filled_ids)
        if blind > _BLIND * max(1, len(self._graph_ids)):
            self.problems.append(
                f"{blind} graph launches show none of their kernels, so idle time is not known: "
                "record with node-level tracing (nsys: --cuda-graph-trace=node)"
            )
            return None
        begin, end = self.window()
        kinds = self._kernels.values()
        host = [kind for key, kind in self._copies.items() if key[0] in ("h2d", "d2h")]
        waits = [wait for wait in self.waits if begin <= wait.at_us <= end and wait.us]
        return Profile(
            steps=len(self.steps),
            wall_us=end - begin,
            busy_us=self.busy.length(begin, end),
            kernels=sum(kind.count for kind in kinds),
            launches=self.launches,
            graph_launches=self.graph_launches,
            launch_us=self.launch_us,
            waits=len(waits),
            wait_us=sum(wait.us for wait in waits),
            short_kernels=sum(kind.short for kind in kinds),
            short_us=sum(kind.short_us for kind in kinds),
            copy_us=sum(kind.us for kind in host),
            copy_bytes=sum(kind.bytes for kind in host),
            top=self._top(),
        )

    def window(self) -> tuple[float, float]:
        """Return begin and end of what is judged: the steps and the work that they queued."""
        if not self.steps:
            return self.first_us, self.last_us
        begin = min(at for _, _, at, _ in self.steps)
        end = max(at + us for _, _, at, us in self.steps)
        return begin, max(end, self.last_us)

    def steps_of_evidence(self) -> tuple[Step, ...]:
        """Return the steps, each with the time until the next on its thread."""
        found = []
        begin = self.window()[0] if self.steps else 0.0
        later: dict[str, float] = {}
        for _, thread, at, us in sorted(self.steps, key=lambda step: -step[2]):
            turn = later[thread] - at if thread in later else None
            later[thread] = at
            found.append(Step(at - begin, us, turn, thread))
        return tuple(reversed(found))

    def copies(self) -> tuple[Copy, ...]:
        """Return the copies by direction, the largest first."""
        found = [
            Copy(direction, None, kind.count, kind.bytes, kind.us, pinned)
            for (direction, pinned), kind in self._copies.items()
            if direction in ("h2d", "d2h")
        ]
        return tuple(sorted(found, key=lambda copy: -copy.bytes))

    def _top(self) -> tuple[KernelUse, ...]:
        uses = [KernelUse(n, k.count, k.us, k.in_graphs) for n, k in self._kernels.items()]
        return tuple(sorted(uses, key=lambda use: -use.us)[:_TOP])

    def _meet(self, begin: float, end: float) -> None:
        self.first_us = min(self.first_us, begin)
        self.last_us = max(self.last_us, end)

    def _span(self, track: str, name: str, at_us: float, us: float) -> None:
        if len(self.spans) < _MOST_SPANS:
            self.spans.append(Span(track, name, at_us, us))
