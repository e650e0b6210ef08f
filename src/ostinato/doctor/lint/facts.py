"""What is kept of a file once it has been read: plain, small, and ready to cross a process.

A file is read once, alone. What the lint would report hangs on things that only the whole project
knows: whether a function runs in every step, whether a parameter is a tensor. So a reader writes
down sightings and calls with their conditions, and `project.py` decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ostinato.doctor.lint.values import Spot, Value


class Scope(Enum):
    """Where a sighting counts."""

    ALWAYS = "always"
    STEP = "step"  # in what runs again and again: a forward, a decode loop
    LOOP = "loop"  # in any loop that does not train
    COMPILED = "compiled"  # in what torch.compile traces
    CAPTURED = "captured"  # in what a CUDA graph records
    WORKER = "worker"  # in what a worker thread or process runs
    WORKER_POOL = "worker pool"  # where a worker of the same file runs a model on the CPU


class Wants(Enum):
    """What the value must turn out to be."""

    TENSOR = "tensor"
    NOT_HOST = "not host"  # a tensor, or nothing that is known to be something else
    BOOL_TENSOR = "bool tensor"
    MODEL = "model"
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something that may be a finding.

    Attributes:
        code: Such as 101.
        fact: What was seen, in words; the expression itself is added when it is printed.
        value: What `wants` asks about.
        loops: The loops round it, by number, the outermost first.
        guarded: Whether it runs in training alone, once, or on the way to an error.
        handed_out: Whether it is the result of a round on its way out: appended, or yielded.
    """

    code: int
    scope: Scope
    spot: Spot
    fact: str
    value: Value
    wants: Wants
    loops: tuple[int, ...] = ()
    guarded: bool = False
    handed_out: bool = False


class Pause(Enum):
    """Why a line waits."""

    GPU = "the GPU"
    IO = "I/O"
    SLEEP = "a sleep"
    AWAIT = "an await"
    MODEL = "a model"
    FILE = "a file"
    THREAD = "another thread"


@dataclass(frozen=True, slots=True)
class Wait:
    """A line that waits.

    Attributes:
        locked: The name of the lock that is held there; None if none is.
        awaited: Whether the event loop goes on meanwhile.
    """

    pause: Pause
    spot: Spot
    fact: str
    value: Value
    wants: Wants
    locked: str | None
    awaited: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call of something that may be in the project.

    Attributes:
        feeds_back: What an earlier round of the loop computed goes in.
    """

    target: Value
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    spot: Spot
    loops: tuple[int, ...]
    guarded: bool
    captured: bool
    locked: str | None
    awaited: bool
    feeds_back: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop.

    Attributes:
        runs_model: It calls what is plainly a model.
        inference: It runs under no_grad or inference_mode, or in what is named generate or so.
        feeds_back: What a round computes goes into the model in the next one.
    """

    runs_model: bool
    inference: bool
    feeds_back: bool = False


@dataclass(slots=True)
class Function:
    """A function or method, or the body of a module.

    Attributes:
        owner: Dotted name of the class; None outside one.
        roles: Scopes that its decorators put it in.
        inference: It is decorated with no_grad or inference_mode.
        trains: It calls backward or an optimizer.
        once: Its name says that it runs once: `__init__`, `load_...`.
        unreleased: Locks that it acquires by hand and does not release: whoever does may be near.
    """

    name: str
    owner: str | None = None
    is_async: bool = False
    params: tuple[tuple[str, Value], ...] = ()
    returns: Value | None = None
    sightings: list[Sighting] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    roles: frozenset[Scope] = frozenset()
    inference: bool = False
    trains: bool = False
    once: bool = False
    runs_model: bool = False
    unreleased: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Class:
    """A class: its bases, by dotted name, and what its attributes are."""

    name: str
    bases: tuple[str, ...]
    attributes: dict[str, Value] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    properties: frozenset[str] = frozenset()
    decorators: tuple[str, ...] = ()


@dataclass(slots=True)
class Module:
    """A file that was read.

    Attributes:
        aliases: What its imports call what, and its own names.
        wraps: What it puts in a scope: `torch.compile(model)`, `Thread(target=work)`.
        unread: Lines of functions that are nested too deeply, and their names.
        replacers: Its class decorators that put another forward in the place of a class's own.
        wrapped: Names of functions that it compiles or records.
        sets_threads: It sets how many threads torch starts.
        names_gpu: It speaks of "cuda".
        names_torch: It speaks of "torch".
    """

    name: str
    path: str
    aliases: dict[str, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    classes: dict[str, Class] = field(default_factory=dict)
    wraps: list[tuple[Scope, Value]] = field(default_factory=list)
    unread: list[tuple[int, str]] = field(default_factory=list)
    replacers: frozenset[str] = frozenset()
    wrapped: frozenset[str] = frozenset()
    sets_threads: bool = False
    names_gpu: bool = False
    names_torch: bool = False
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read, and why."""

    path: str
    line: int
    why: str
