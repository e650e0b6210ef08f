"""Traces written by hand with the field names that torch.profiler and Nsight Systems use.

One workload in several recordings: steps of 1000 us, in each 50 kernels of 4 us.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEP_US, KERNELS, KERNEL_US = 1000.0, 50, 4.0
ORIGIN_US = 5_147_225_556_000.0
DEVICE = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}


@dataclass
class Trace:
    """Events of one process with one thread and one stream."""

    events: list[dict[str, Any]] = field(default_factory=list)
    head: dict[str, Any] = field(
        default_factory=lambda: {"schemaVersion": 1, "deviceProperties": [DEVICE], "with_stack": 1}
    )
    correlation: int = 0

    def event(self, cat: str, name: str, at: float, us: float, **args: Any) -> None:
        on_device = cat in ("kernel", "gpu_memcpy", "gpu_memset")
        where = {"pid": 0, "tid": 7} if on_device else {"pid": 4711, "tid": 4711}
        event = {"ph": "X", "cat": cat, "name": name, **where, "ts": ORIGIN_US + at, "dur": us}
        self.events.append({**event, "args": args})

    def step(self, number: int, at: float, us: float = STEP_US) -> None:
        self.event("user_annotation", f"ProfilerStep#{number}", at, us)
        self.event("python_function", "app/model.py(10): forward", at + 1, us - 2)
        self.event("python_function", "torch/nn/modules/linear.py(120): forward", at + 2, us - 4)

    def kernels(self, at: float, every: float, *, by_graph: bool, shown: bool = True) -> None:
        """Launch the kernels of one step, one by one or together."""
        if by_graph:
            self.correlation += 1
            self.event("cuda_runtime", "cudaGraphLaunch", at, 8.0, correlation=self.correlation)
        for index in range(KERNELS):
            start = at + 10 + index * every
            if not by_graph:
                self.correlation += 1
                self.event(
                    "cuda_runtime",
                    "cudaLaunchKernel",
                    start - 8,
                    5.0,
                    correlation=self.correlation,
                )
            if shown:
                self.event(
                    "kernel",
                    f"void gemm<{index % 3}>(float*)",
                    start,
                    KERNEL_US,
                    correlation=self.correlation,
                    device=0,
                    stream=7,
                )

    def copy(self, at: float, us: float, nbytes: int, kind: str) -> None:
        """Let the host copy, and wait for it, inside a call of torch."""
        self.correlation += 1
        self.event("cpu_op", "aten::copy_", at - 5, us + 20)
        self.event("cuda_runtime", "cudaMemcpyAsync", at - 3, 3.0, correlation=self.correlation)
        self.event("cuda_runtime", "cudaStreamSynchronize", at + 1, us + 5, correlation=0)
        self.event(
            "gpu_memcpy",
            f"Memcpy {kind}",
            at,
            us,
            bytes=nbytes,
            correlation=self.correlation,
        )

    def read(self, at: float, us: float) -> None:
        """Let the host read a number."""
        self.event("python_function", "app/model.py(30): decide", at - 3, us + 12)
        self.event("cpu_op", "aten::item", at - 2, us + 10)
        self.event("cpu_op", "aten::_local_scalar_dense", at - 1, us + 8)
        self.event("cuda_runtime", "cudaStreamSynchronize", at, us, correlation=0)

    def text(self) -> str:
        return json.dumps({**self.head, "traceEvents": self.events, "traceName": "x"})

    def write(self, path: Path) -> Path:
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(self.text().encode()))
        else:
            path.write_text(self.text(), "utf-8")
        return path


def eager(steps: int = 10, every: float = 18.0) -> Trace:
    """Kernels launched one by one, with the device idle in between."""
    trace = Trace()
    for number in range(steps):
        trace.step(number, number * STEP_US)
        trace.kernels(number * STEP_US, every, by_graph=False)
    return trace


def replayed(steps: int = 10, *, shown: bool = True, every: float = KERNEL_US) -> Trace:
    """The same kernels out of one graph a step, the next step as soon as they end."""
    trace = Trace()
    step_us = 10 + KERNELS * every
    for number in range(steps):
        trace.step(number, number * step_us, step_us)
        trace.kernels(number * step_us, every, by_graph=True, shown=shown)
    return trace


SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER,
  returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER, shortName INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  correlationId INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  syncType INTEGER, correlationId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT,
  textId INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (name TEXT, smMajor INTEGER, smMinor INTEGER);
"""
_COPY_KINDS = {"HtoD": 1, "DtoH": 2}


def write_nsight(trace: Trace, path: Path) -> Path:
    """Write the same recording as Nsight Systems exports it."""
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings) + 1)

    with closing(sqlite3.connect(path)) as base:
        base.executescript(SCHEMA)
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200', 9, 0)")
        for event in trace.events:
            start = round(event["ts"] * 1000)
            end, args = start + round(event["dur"] * 1000), event["args"]
            correlation, name = args.get("correlation", 0), event["name"]
            if event["cat"] == "cuda_runtime":
                row = (start, end, 0, 99, correlation, number(f"{name}_v7000"), 0)
                base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({_marks(row)})", row)
            elif event["cat"] == "kernel":
                names = (number(name), number(name.partition("<")[0].removeprefix("void ")))
                row = (start, end, 0, 7, correlation, 1, *names, None)
                base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({_marks(row)})", row)
            elif event["cat"] == "gpu_memcpy":
                way = next(kind for word, kind in _COPY_KINDS.items() if word in name)
                memory = 0 if "Pageable" in name else 1
                row = (start, end, correlation, args["bytes"], way, memory, memory)
                base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({_marks(row)})", row)
            elif event["cat"] == "user_annotation":
                text = (f"step {name}", None) if start % 2 else (None, number(f"step {name}"))
                row = (start, end, 59, *text, 99)
                base.execute(f"INSERT INTO NVTX_EVENTS VALUES ({_marks(row)})", row)
        rows = [(identity, text) for text, identity in strings.items()]
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
        base.commit()
    return path


def _marks(row: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(row))
