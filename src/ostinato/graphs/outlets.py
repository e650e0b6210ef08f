"""Objects through which a run acts on the world outside torch: queues, files, events, variables.

Nothing puts back what went through one, so no trial run is made of code that uses one.
"""

from __future__ import annotations

import io
import multiprocessing.queues
import queue
import socket
import threading
from contextvars import ContextVar

_QUEUES = (queue.Queue, queue.SimpleQueue, multiprocessing.queues.Queue)
_FILES = (io.IOBase,)
_SIGNALS = (threading.Semaphore, threading.Event, threading.Condition, threading.Barrier)

OUTLETS = (*_QUEUES, *_FILES, *_SIGNALS, socket.socket, ContextVar)

_QUEUE_METHODS = frozenset({"put", "put_nowait", "get", "get_nowait", "task_done"})
_FILE_METHODS = frozenset(
    {"write", "writelines", "read", "readline", "readlines", "seek", "truncate", "print", "dump"}
)
_SIGNAL_METHODS = frozenset({"acquire", "release", "set", "clear", "wait", "notify", "notify_all"})
_VARIABLE_METHODS = frozenset({"set", "reset"})
_SOCKET_METHODS = frozenset({"send", "sendall", "sendto", "recv", "recv_into"})


def methods_of_outlet(held: object) -> frozenset[str]:
    """Return the names by which code acts through an outlet; naming none, it only passes it on."""
    if isinstance(held, _QUEUES):
        return _QUEUE_METHODS
    if isinstance(held, _FILES):
        return _FILE_METHODS
    if isinstance(held, ContextVar):
        return _VARIABLE_METHODS
    return _SOCKET_METHODS if isinstance(held, socket.socket) else _SIGNAL_METHODS
