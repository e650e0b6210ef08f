"""Recordings, compilation and attention: which fast path ran, and why another did not."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.doctor.finding import Place


@dataclass(frozen=True, slots=True)
class WordCount:
    """A reason, and how often it was given; `detail` is the latest sentence of it."""

    word: str
    count: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RecordingUse:
    """One recording of a graphed callable.

    Attributes:
        eager_us, replay_us: One run each way when it was made; 0 where nobody timed it.
    """

    graph_id: str
    signature: str
    hits: int
    bytes: int = 0
    build_us: float = 0.0
    nodes: int = 0
    eager_us: float = 0.0
    replay_us: float = 0.0


@dataclass(frozen=True, slots=True)
class GraphUse:
    """A callable that records, be it by `graphed` or by hand.

    Attributes:
        kind: "graphed", or "cuda-graph" for torch.cuda.CUDAGraph used by hand.
        eager: Calls that ran eagerly, by reason.
        dropped: Recordings given up, by reason.
        warnings: What the runtime warned of, by code.
        sizes: Size of the first dimension of the first tensor -> calls, as it varied.
        values: Text of plain arguments that are part of the key -> calls, as they varied.
        moved_inputs: Replays by hand whose inputs lay elsewhere than where they were recorded.
        build_us: Host time spent on all recordings.
    """

    name: str
    place: Place | None = None
    kind: str = "graphed"
    calls: int = 0
    replays: int = 0
    captures: int = 0
    recaptures: int = 0
    evictions: int = 0
    bytes: int = 0
    budget_bytes: int = 0
    build_us: float = 0.0
    eager: tuple[WordCount, ...] = ()
    dropped: tuple[WordCount, ...] = ()
    warnings: tuple[WordCount, ...] = ()
    recordings: tuple[RecordingUse, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    values: tuple[WordCount, ...] = ()
    moved_inputs: int = 0
    padded_rows: int = 0


@dataclass(frozen=True, slots=True)
class AmpSwitch:
    """Autocast that was entered or left while a recording was being made, or inside a step.

    Attributes:
        capturing: Times it happened during a capture.
        states: The states ("off", "bfloat16", …) under which one callable was called.
    """

    place: Place | None
    count: int
    capturing: int = 0
    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A place where torch.compile gave up and went on in Python.

    Attributes:
        count: Times it was hit while compiling.
        us_per_step: Latency lost there in a step: launches and guards of the extra piece; None
            where nobody measured.
    """

    reason: str
    place: Place | None
    count: int
    us_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class Recompile:
    """One function that was compiled again."""

    function: str
    place: Place | None
    count: int
    us: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedCudagraphs:
    """Compiled code for which CUDA graphs were asked and not used, with torch's own reason."""

    reason: str
    place: Place | None
    count: int


@dataclass(frozen=True, slots=True)
class CompileUse:
    """What torch.compile did.

    Attributes:
        frames: Frames compiled; `us` the time that took.
        graphs: Graphs that came out.
        wants_cudagraphs: Whether a mode with CUDA graphs was asked for.
    """

    frames: int = 0
    graphs: int = 0
    us: float = 0.0
    wants_cudagraphs: bool = False
    breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    skips: tuple[SkippedCudagraphs, ...] = ()


@dataclass(frozen=True, slots=True)
class BackendTime:
    """One call of attention on one backend: "flash", "efficient", "cudnn", "math"."""

    backend: str
    us: float


@dataclass(frozen=True, slots=True)
class AttentionUse:
    """Calls of scaled_dot_product_attention with one set of shapes.

    Attributes:
        query, key: (batch, heads, tokens, head size); `value_size` is the value's head size.
        mask: Shape of attn_mask, None without one; `mask_grad` whether it wants a gradient.
        strides: The query's.
        backend: Which one ran: "flash", "efficient", "cudnn", "math", "overrideable", or "".
        only: Backends that the program allows, where it restricts them.
        refusals: torch's own words, where it could be asked.
        times: Measured on copies of the arguments, where somebody tried.
        us: Host time of all calls; device time where a profiler saw it.
        each_us: Of the latest calls; for the spread.
    """

    place: Place | None
    count: int
    query: tuple[int, ...]
    key: tuple[int, ...]
    value_size: int
    dtype: str
    device: str
    capability: str
    backend: str
    mask: tuple[int, ...] | None = None
    mask_dtype: str = ""
    mask_grad: bool = False
    causal: bool = False
    dropout: float = 0.0
    strides: tuple[int, ...] = ()
    gqa: bool = False
    needs_grad: bool = False
    only: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    times: tuple[BackendTime, ...] = ()
    us: float = 0.0
    each_us: tuple[float, ...] = ()
