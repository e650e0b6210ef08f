"""Steps, waits, copies and kernels: what the host and the device did, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ostinato.doctor.finding import Place


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the program: a call of its outermost module, or what it marked.

    Attributes:
        began_us: Since the watch began.
        us: Host time inside the call.
        turn_us: Time until the next step began on the same thread; None for the last one, and where
            the thread lay idle in between.
    """

    began_us: float
    us: float
    turn_us: float | None = None
    thread: str = "MainThread"


class WaitKind(StrEnum):
    """Why the host waited for the device."""

    SCALAR = "scalar"  # .item(), bool(t), int(t), float(t): Python decides on a value
    EXPORT = "export"  # .tolist(), .cpu(), .numpy(), print(t): a result leaves
    SHAPE = "shape"  # nonzero, a boolean mask, unique: a size that depends on values
    UPLOAD = "upload"  # torch.tensor(x, device="cuda"), .cuda() of pageable memory
    PAGEABLE = "pageable"  # a "non_blocking" copy that blocks, because its memory is not pinned
    SYNCHRONIZE = "synchronize"


@dataclass(frozen=True, slots=True)
class Wait:
    """All waits by one operation at one line.

    Attributes:
        op: As the user wrote it, such as "Tensor.item".
        inside: Of `count`, those inside a step; `between` those from a step's end to the next.
        steps: How many steps had any, to the begin of the next; None where nobody counted.
        us: Host time in all of them; on a CPU next to nothing, on a GPU the drain of its queue.
        step_us: The time in each step that had any, the latest ones; for the spread.
        on_device: Whether the tensors lay on a GPU; False means "would wait there".
    """

    op: str
    kind: WaitKind
    place: Place | None
    count: int
    inside: int = 0
    between: int = 0
    steps: int | None = None
    us: float = 0.0
    step_us: tuple[float, ...] = ()
    bytes: int = 0
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class SizedCopy:
    """Copies of one size of step: `size` is the rows or tokens that the step was given."""

    size: int
    steps: int
    bytes: int
    us: float


@dataclass(frozen=True, slots=True)
class Copy:
    """All copies by one line in one direction.

    Attributes:
        direction: "h2d", "d2h" or "d2d".
        us: Time on the copy engine, or of the host where it had to wait.
        pinned: Whether the host's memory was page-locked; None where nobody knows.
        by_size: The same by the size of the step, to see what grows.
        each_us: Of the latest ones; for the spread.
    """

    direction: str
    place: Place | None
    count: int
    bytes: int
    us: float
    pinned: bool | None = None
    by_size: tuple[SizedCopy, ...] = ()
    each_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LostGradient:
    """A value read from a tensor with a history, that went into a loss as a plain number.

    Attributes:
        place: Where it was read; `used` is where it went on.
        certain: Whether the very number was seen entering, and not just the line.
    """

    op: str
    place: Place | None
    used: Place | None
    count: int
    certain: bool = True


@dataclass(frozen=True, slots=True)
class SignatureUse:
    """Calls with one set of shapes and dtypes, of those that were looked at.

    Attributes:
        sizes: Of the first tensor.
    """

    text: str
    sizes: tuple[int, ...]
    calls: int


@dataclass(frozen=True, slots=True)
class Callable_:  # noqa: N801 - "Callable" would read as typing's
    """An outermost module that was called.

    Attributes:
        captured: Whether recordings answered it: "graphed", "cuda-graph", "compiled-cudagraphs" or
            empty.
        with_grad: Calls whose result has a history.
        blockers: What a recording would refuse, seen while it ran ("host-sync at line").
        moved_weights: Calls before which a parameter's memory had moved.
    """

    name: str
    place: Place | None
    calls: int
    us: float
    signatures: tuple[SignatureUse, ...] = ()
    captured: str = ""
    compiled: bool = False
    with_grad: int = 0
    blockers: tuple[str, ...] = ()
    moved_weights: int = 0


@dataclass(frozen=True, slots=True)
class LayoutCopy:
    """Copies made only to change the order of elements in memory.

    Attributes:
        op: "contiguous" or "reshape".
        feeds: "attention" where the copy went into scaled_dot_product_attention, else empty.
        us: Time of all of them: measured on a CPU, from bytes and bandwidth on a GPU.
        with_copy_us, without_copy_us: One call of the consumer each way, copy included; None where
            nobody tried.
        each_us: Of the latest copies; for the spread.
    """

    op: str
    place: Place | None
    count: int
    bytes: int
    us: float
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    feeds: str = ""
    with_copy_us: float | None = None
    without_copy_us: float | None = None
    each_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelUse:
    """All runs of one kernel in the profiled window."""

    name: str
    count: int
    us: float
    in_graphs: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """A short window of the profiler, or a saved trace.

    Attributes:
        steps: Steps in the window; 0 where the trace has no marks.
        wall_us: Length of the window.
        busy_us: Time in which the device did anything, overlaps counted once.
        launches: Launch calls that the host made; one for a whole graph. `graph_launches` of them.
        launch_us: Host time inside launch calls.
        waits: Synchronising calls; `wait_us` the host's time in them.
        short_kernels: Kernels under 5 us, `short_us` their device time.
    """

    steps: int
    wall_us: float
    busy_us: float
    kernels: int
    launches: int
    graph_launches: int
    launch_us: float
    waits: int = 0
    wait_us: float = 0.0
    short_kernels: int = 0
    short_us: float = 0.0
    copy_us: float = 0.0
    copy_bytes: int = 0
    top: tuple[KernelUse, ...] = ()
