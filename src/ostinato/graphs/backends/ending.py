"""When a series of replays ends: after so many, when all is done, or when somebody rings.

`loop.py` makes one; each backend looks at it in its own way. A loop on the device reads both the
flags and the bell from there, so the host need not stand between two replays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor


class Bell:
    """Rung by any thread when someone waits: a series under way ends after the replay it is in.

    What was rung before `heed` does not end a series that is queued after it.

    Args:
        device: Where the series runs.
    """

    def __init__(self, device: torch.device) -> None:
        # Pinned memory has one address on both sides.
        self.rung = torch.zeros(1, dtype=torch.long, pin_memory=device.type == "cuda")
        self.heard = 0
        self._rung = self.rung.numpy()
        self._rings = count(1)
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Say that someone waits."""
        with self._lock:
            self._rung[0] = next(self._rings)

    def heed(self) -> None:
        """Take note of what was rung so far: whoever waits is being looked after."""
        self.heard = int(self._rung[0])

    @property
    def is_ringing(self) -> bool:
        """Whether someone waits and is not looked after."""
        return int(self._rung[0]) != self.heard


class Ending:
    """When a series of replays ends.

    Attributes:
        flags: It ends once no element is 0; looked at before each replay, the first one too.
        bell: It ends when this rings; looked at after each replay.
        control: Read by loops on the device, int64: replays so far, the most, what was heard.
        why_queued: Why a series is queued replay by replay instead of as one launch; None where it
            is not, or not known yet.
    """

    def __init__(self, device: torch.device, flags: Tensor | None, bell: Bell | None) -> None:
        self.flags, self.bell = flags, bell
        self.why_queued: str | None = None
        self.control = torch.zeros(3, dtype=torch.long, device=device)
        self._most, self._heard = 0, 0
        on_host = flags is not None and flags.device.type == "cpu"
        self._seen = flags.numpy() if flags is not None and on_host else None

    def arm(self, most: int) -> None:
        """Queue what a loop on the device reads, where it is not what it read the last time."""
        if most != self._most:
            self.control[1].fill_(most)
            self._most = most
        if self.bell is not None and self.bell.heard != self._heard:
            self._heard = self.bell.heard
            self.control[2].fill_(self._heard)

    def is_reached(self, replays: int) -> bool:
        """Whether to stop after so many replays, as far as the host can tell without waiting."""
        if replays and self.bell is not None and self.bell.is_ringing:
            return True
        return self._seen is not None and bool(self._seen.all())


def replay_in_turn(replay: Callable[[], object], times: int, ending: Ending) -> int:
    """Replay one by one until `ending`; return how often."""
    done = 0
    while done < times and not ending.is_reached(done):
        replay()
        done += 1
    return done
