"""The order in which recordings with collectives and their process groups must end.

NCCL does not let a communicator go while a CUDA graph holds one of its kernels: with a live
recording of an all-reduce, `destroy_process_group()` never returns. The caller cannot know which
recordings there are, so the recordings of collectives go first, by themselves. Others stay.

Any group that is destroyed ends all of them: which group a kernel belongs to is not known. A code
that imported `destroy_process_group` by name before the first such recording was made calls torch's
own; it must call `release_all()` before.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch.distributed

if TYPE_CHECKING:
    from ostinato.graphs.backends.base import Recording

_collective: weakref.WeakSet[Recording] = weakref.WeakSet()
_lock = threading.Lock()


def end_before_its_group(recording: Recording) -> None:
    """Release `recording`, which holds a collective, before any process group is destroyed."""
    with _lock:
        _collective.add(recording)
        destroy = torch.distributed.destroy_process_group
        if not hasattr(destroy, "_releases_recordings"):
            _wrap(destroy)


def _wrap(destroy: Any) -> None:
    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        _release_collective()
        return destroy(*args, **kwargs)

    destroy_process_group._releases_recordings = True  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group = destroy_process_group
    torch.distributed.distributed_c10d.destroy_process_group = destroy_process_group


def _release_collective() -> None:
    with _lock:
        gone = list(_collective)
        _collective.clear()
    for recording in gone:
        recording.release()
