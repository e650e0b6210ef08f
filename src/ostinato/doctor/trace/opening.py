"""What kind of trace a file is, by its first bytes, and who reads it."""

from __future__ import annotations

from pathlib import Path

from ostinato.doctor.evidence import Evidence
from ostinato.doctor.trace.chrome import read_chrome
from ostinato.doctor.trace.nsight import read_nsight
from ostinato.errors import UsageError

_SQLITE = b"SQLite format 3\x00"
_GZIP = b"\x1f\x8b"
_HOW = (
    "give the file that torch.profiler's export_chrome_trace wrote, or what "
    "`nsys export --type sqlite` made of a report"
)


def read_trace(path: Path, *, step: str = "") -> Evidence:
    """Return what a trace says, as evidence; damage is in its `problems`.

    Args:
        step: Name, or the beginning of the name, of the annotation that makes a step; empty means
            "ProfilerStep" of torch.profiler, or a "step" marked by `ostinato doctor run`.

    Raises:
        UsageError: OST7060, there is no such file, or it is empty; OST7061, it is no trace.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}",
            code="OST7060",
            remedy=_HOW,
        ) from error
    if not head:
        raise UsageError(f"{path} is empty", code="OST7060", remedy=_HOW)
    if head.startswith(_SQLITE):
        return read_nsight(path, step)
    if head.startswith(_GZIP) or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return read_chrome(path, step)
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise UsageError(
            f"{path} is Nsight Systems' own report, whose form only nsys can read",
            code="OST7061",
            remedy=f"run `nsys export --type sqlite {path}`, and give the file that it makes",
        )
    raise UsageError(
        f"{path} is neither a Chrome trace nor an SQLite export: it begins with {head[:16]!r}",
        code="OST7061",
        remedy=_HOW,
    )
