"""torch's own word on waits that no Python function shows: its sync debug mode, on a GPU.

It warns of each wait, for 50 us, and the mode is one for the whole process. So it is on only while
some thread's step is looked at, and off around a wait that is noted anyway. Where it is off, the
program has the mode that it had before.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from ostinato.doctor.collect.gpu_use import once_used
from ostinato.doctor.collect.notebook import Notebook

_SYNC_WARNING = "called a synchronizing CUDA operation"
_WARN = 1


class TorchTells:
    """Switches torch's mode, and hears its warnings.

    Args:
        hear: Told of the frame in which torch warned, while what happens there is looked at.

    Attributes:
        now: Whether torch warns now.
    """

    def __init__(self, notebook: Notebook, hear: Callable[[FrameType], None]) -> None:
        self._notebook = notebook
        self._hear = hear
        self._shows: Any = None
        self._has_begun = False
        self._mode_before = 0
        self.now = False

    def start(self) -> None:
        """Have torch tell from the moment on at which the program uses the GPU.

        The filter is our own and stands first, so that a program which turns warnings into errors
        gets none from this.
        """
        shown = warnings.showwarning

        def show(message: Any, *args: Any, **kwargs: Any) -> None:
            if _SYNC_WARNING not in str(message):
                shown(message, *args, **kwargs)
            elif self._notebook.here.looks and not self._notebook.here.quiet:
                self._hear(sys._getframe(1))

        warnings.filterwarnings("always", message=f".*{_SYNC_WARNING}.*")
        self._shows = (shown, show, warnings.filters[0])
        warnings.showwarning = show
        self._notebook.turn_listeners.append(self._turn)
        once_used(self._begin)

    def stop(self) -> None:
        """Leave the mode and the warnings as they were."""
        if self._has_begun:
            torch.cuda.set_sync_debug_mode(self._mode_before)
        self._has_begun = self.now = False
        if self._shows is not None:
            if warnings.showwarning is self._shows[1]:
                warnings.showwarning = self._shows[0]
            filters: Any = warnings.filters
            filters[:] = [entry for entry in filters if entry is not self._shows[2]]
            self._shows = None

    def hold(self) -> None:
        """Have torch keep still: what follows is noted, and it would warn of it as well."""
        torch._C._cuda_set_sync_debug_mode(0)

    def go_on(self) -> None:
        """Let torch warn again, unless it was told otherwise meanwhile."""
        torch._C._cuda_set_sync_debug_mode(_WARN if self.now else self._mode_before)

    def _begin(self) -> None:
        if self._shows is None:  # the watch is over
            return
        self._mode_before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        self._has_begun = self.now = True

    def _turn(self) -> None:
        """Hear that a thread goes over from steps that are looked at to others, or back."""
        now = not self._notebook.stepping <= self._notebook.passing_over
        if self._has_begun and now is not self.now:
            self.now = now
            self.go_on()
