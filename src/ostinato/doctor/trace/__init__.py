"""Saved traces become evidence: torch.profiler's Chrome JSON, and Nsight Systems' SQLite export.

`read_trace` is the door. It needs neither torch nor a GPU, reads a file of any size in bounded
memory, and keeps what a broken file still holds.
"""

from ostinato.doctor.trace.opening import read_trace

__all__ = ["read_trace"]
