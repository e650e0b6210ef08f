"""The GIL, locks, the event loop, the garbage collector and threads, in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.doctor.finding import Place


@dataclass(frozen=True, slots=True)
class LineUse:
    """A line, and its share of a thread's time, 0 to 1.

    The line is the innermost that belongs neither to torch nor to Python's own library.
    """

    place: Place
    share: float


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """One thread, by samples.

    Attributes:
        runs: Share of the samples in which it ran Python code or held the GIL, 0 to 1.
        waits: Share in which it wanted the GIL and had it not.
        wait_us: Time it waited so.
        place: Where it was most often while it ran and kept another waiting, or just while it ran;
            `waits_at` while it waited.
        holds: Samples in which it ran while another thread waited; 0 where nobody counted.
        samples: How many there were; 0 where nobody counted.
        ready: Share of the time in which it stood ready and had no CPU to run on.
        busy: The lines that it ran most of the time at, once its steps had begun, as shares of the
            time that it ran.
        hidden: Part of that time which may belong to another line: the GIL was got late.
        outside: The lines that it spent most time at between its steps, running or not, as shares
            of all its time since they began.
    """

    name: str
    runs: float
    waits: float
    wait_us: float
    place: Place | None = None
    waits_at: Place | None = None
    in_steps: bool = False
    holds: int = 0
    samples: int = 0
    ready: float = 0.0
    busy: tuple[LineUse, ...] = ()
    hidden: float = 0.0
    outside: tuple[LineUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Gil:
    """What the sampler saw of the GIL.

    Attributes:
        contended: Share of samples in which at least one thread waited while another held it.
        late_us: Median delay of the sampler itself before it got the GIL.
    """

    samples: int
    interval_us: float
    contended: float
    late_us: float
    threads: tuple[ThreadUse, ...] = ()


@dataclass(frozen=True, slots=True)
class LockHeld:
    """A threading.Lock or RLock held across something that takes long.

    Attributes:
        across: "device", "io" or "await".
        place: Where it waits; `taken` is where the lock was taken, `made` where it was created.
        us: Time of the waits; `blocked_us` the time others then waited for the lock, `blocked` how
            many times, and each of the latest how long.
    """

    across: str
    op: str
    place: Place | None
    taken: Place | None
    made: Place | None
    count: int
    us: float
    blocked: int = 0
    blocked_us: float = 0.0
    each_blocked_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """Callbacks of an event loop that kept it from serving anything else.

    Attributes:
        op: What it was doing, such as "time.sleep", or the callback's name.
        us: All of them; `longest_us` the longest, `each_us` the latest.
    """

    op: str
    place: Place | None
    count: int
    us: float
    longest_us: float
    callbacks: int = 0
    each_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GcPause:
    """One run of the garbage collector.

    Attributes:
        us: How long it had a CPU.
        in_step: Whether a step was under way on that thread.
    """

    generation: int
    began_us: float
    us: float
    collected: int
    in_step: bool
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class GcUse:
    """All runs of the garbage collector in the middle of steps.

    Attributes:
        us: How long they took by the clock, as steps are measured.
        long: Of them, those that came after the first steps and had a CPU for 1 ms or more, for
            `long_us` in all.
    """

    runs: int = 0
    us: float = 0.0
    long: int = 0
    long_us: float = 0.0


@dataclass(frozen=True, slots=True)
class ThreadPools:
    """Threads against the CPUs they may use.

    Attributes:
        cpus: What the affinity and the cgroup's quota allow, fractions included.
        torch_threads, interop_threads: Of torch in this process.
        processes: Python processes of this program that compute (this one included).
        python_threads: Threads that ran torch code at the same time.
        runnable_share: Time that this process's threads stood ready with no CPU to run on, against
            the time that they ran.
        throttled_share: Share of the cgroup's periods that ended throttled.
    """

    cpus: float
    torch_threads: int
    interop_threads: int
    processes: int = 1
    python_threads: int = 1
    runnable_share: float | None = None
    throttled_share: float | None = None
    place: Place | None = None
