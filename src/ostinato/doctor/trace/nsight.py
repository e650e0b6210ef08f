"""Read Nsight Systems' SQLite export into evidence.

Tables are there only if something of their kind happened, and their columns differ between
versions, so each is asked what it has. Rows come one by one: a report of an hour has a hundred
million. Times are in nanoseconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ostinato.doctor.activity import WaitKind
from ostinato.doctor.evidence import Evidence, Subject
from ostinato.doctor.trace.calls import is_graph_launch, is_launch, is_wait, plain
from ostinato.doctor.trace.making import evidence_of
from ostinato.doctor.trace.timeline import Timeline, WaitSeen
from ostinato.errors import UsageError

_KIND = "CUPTI_ACTIVITY_KIND_"
_WAYS = {1: "h2d", 2: "d2h", 8: "d2d"}
_PAGEABLE, _PINNED = 0, 1
_STEPS = ("step", "ProfilerStep#", "iteration")
_MOST_WAITS = 1 << 20
_SYSTEM_CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")


def read_nsight(path: Path, step: str) -> Evidence:
    """Return the evidence of an SQLite export.

    Raises:
        UsageError: OST7061, it is a database of something else, or cannot be opened at all.
    """
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            reader = _Reader(database, step)
            if not reader.is_nsight():
                raise UsageError(
                    f"{path} is an SQLite database, but none that Nsight Systems exported",
                    code="OST7061",
                    remedy="give the file that `nsys export --type sqlite REPORT` makes",
                )
            reader.read()
            return evidence_of(
                reader.timeline,
                source="trace",
                subject=reader.subject(path),
                has_frames=True,  # there are none to record
            )
    except sqlite3.DatabaseError as error:
        raise UsageError(
            f"{path} cannot be read as an SQLite database: {error}",
            code="OST7061",
            remedy="export the report again: this file is damaged, or still being written",
        ) from error


class _Reader:
    def __init__(self, database: sqlite3.Connection, step: str) -> None:
        self.timeline = Timeline()
        self._database = database
        self._steps = (step,) if step else _STEPS
        names = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self._tables = {str(name) for (name,) in names}
        self._strings: dict[int, str] = {}
        self._dropped = 0

    def is_nsight(self) -> bool:
        return "StringIds" in self._tables

    def read(self) -> None:
        """Read table by table, the host's calls first; a damaged table costs only its own rows."""
        for part in (
            self._calls, self._kernels, self._graphs, self._memsets, self._copies, self._marks,
        ):  # fmt: skip
            try:
                part()
            except sqlite3.DatabaseError as error:
                self.timeline.problems.append(
                    f"the export is damaged at its {part.__name__.strip('_')}: {error}; "
                    "what came before is used"
                )

    def subject(self, path: Path) -> Subject:
        name = capability = ""
        for row in self._rows("TARGET_INFO_GPU", ("name", "smMajor", "smMinor")):
            name = str(row[0] or "")
            capability = "" if row[1] is None else f"{row[1]}.{row[2] or 0}"
            break
        begin, end = self.timeline.window()
        return Subject(
            title=str(path),
            device="cuda" if self.timeline.has_device else "cpu",
            accelerator=name,
            capability=capability,
            seconds=max(0.0, end - begin) / 1e6 if end > begin else 0.0,
        )

    def _calls(self) -> None:
        wanted = ("start", "end", "nameId", "correlationId", "globalTid")
        for table in _SYSTEM_CALLS:
            for start, end, name_id, correlation, thread in self._rows(table, wanted):
                if end is None or end < start:
                    continue  # it had not returned when the recording ended
                name = self._string(name_id)
                at, us = start / 1e3, (end - start) / 1e3
                if is_graph_launch(name):
                    self.timeline.add_launch(at, us, correlation or 0, of_graph=True)
                elif is_launch(name):
                    self.timeline.add_launch(at, us, correlation or 0, of_graph=False)
                elif is_wait(name):
                    kind = WaitKind.SYNCHRONIZE
                    self._keep(WaitSeen(str(thread), at, us, kind, plain(name)))
        if self._dropped:
            self.timeline.problems.append(f"{self._dropped} waits beyond {_MOST_WAITS} unread")

    def _keep(self, seen: WaitSeen) -> None:
        if len(self.timeline.waits) < _MOST_WAITS:
            self.timeline.waits.append(seen)
        else:
            self._dropped += 1

    def _kernels(self) -> None:
        columns = ("start", "end", "correlationId", "shortName", "demangledName")
        for start, end, correlation, short, full in self._rows(f"{_KIND}KERNEL", columns):
            if end is not None and end >= start:
                name = self._string(short if short is not None else full)
                self.timeline.add_kernel(name, start / 1e3, (end - start) / 1e3, correlation or 0)

    def _graphs(self) -> None:
        columns = ("start", "end", "correlationId")
        for start, end, correlation in self._rows(f"{_KIND}GRAPH_TRACE", columns):
            if end is not None and end >= start:
                self.timeline.add_whole_graph(start / 1e3, (end - start) / 1e3, correlation or 0)

    def _memsets(self) -> None:
        columns = ("start", "end", "correlationId")
        for start, end, correlation in self._rows(f"{_KIND}MEMSET", columns):
            if end is not None and end >= start:
                self.timeline.add_kernel(
                    "memset", start / 1e3, (end - start) / 1e3, correlation or 0
                )

    def _copies(self) -> None:
        columns = ("start", "end", "bytes", "copyKind", "srcKind", "dstKind")
        for start, end, nbytes, kind, source, target in self._rows(f"{_KIND}MEMCPY", columns):
            if end is None or end < start:
                continue
            way = _WAYS.get(kind, "other")
            host = source if way == "h2d" else target if way == "d2h" else None
            pinned = None if host not in (_PAGEABLE, _PINNED) else host == _PINNED
            self.timeline.add_copy(
                way, start / 1e3, (end - start) / 1e3, nbytes or 0, pinned=pinned
            )

    def _marks(self) -> None:
        columns = ("start", "end", "text", "textId", "globalTid")
        for start, end, text, text_id, thread in self._rows("NVTX_EVENTS", columns):
            name = text if isinstance(text, str) else self._string(text_id)
            if end is not None and end >= start and name.startswith(self._steps):
                self.timeline.add_step(name, str(thread), start / 1e3, (end - start) / 1e3)

    def _rows(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, if it is there; a column that it lacks is None."""
        if table not in self._tables:
            return
        present = {row[1] for row in self._database.execute(f'PRAGMA table_info("{table}")')}
        if "start" in columns and "start" not in present:
            return
        chosen = ", ".join(f'"{name}"' if name in present else "NULL" for name in columns)
        for row in self._database.execute(f'SELECT {chosen} FROM "{table}"'):
            if row[0] is not None:
                yield row

    def _string(self, identity: Any) -> str:
        if not isinstance(identity, int):
            return ""
        if identity not in self._strings:
            found = self._database.execute("SELECT value FROM StringIds WHERE id = ?", (identity,))
            row = found.fetchone()
            self._strings[identity] = str(row[0]) if row else ""
        return self._strings[identity]
