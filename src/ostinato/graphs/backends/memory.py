"""Working memory that the recordings of one runner share.

What a run makes and drops again lies in a recording's own memory for as long as the recording
lives, a matrix library's workspace of tens of MB above all. Recordings that never run at the same
time can do with one such memory: the first takes what it needs, the next what it needs beyond that.

Who runs, or makes, one of them holds `lock`; each backend keeps here what it needs to share.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.graphs.backends.cuda_pool import SharedPool


class WorkingMemory:
    """One for all recordings of a runner.

    Attributes:
        lock: Held round every run and every recording.
        pools: The CUDA backend's, by device index.
    """

    __slots__ = ("lock", "pools")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pools: dict[int, SharedPool] = {}
