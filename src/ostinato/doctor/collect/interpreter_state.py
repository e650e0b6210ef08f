"""Where CPython keeps its own state, and so the GIL: a thread that sleeps there waits for it.

A lock that is waited for with a timeout sleeps just as the GIL does, but each lock of a program has
memory of its own, and the GIL lies in the one variable that holds the state of the interpreter.
"""

from __future__ import annotations

import ctypes
from functools import cache

_WITH_THE_SYMBOL = 1  # RTLD_DL_SYMENT


class _Info(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Symbol(ctypes.Structure):
    """Elf64_Sym of <elf.h>."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint8),
        ("other", ctypes.c_uint8),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


@cache
def interpreter_state() -> range | None:
    """Return the addresses of the interpreter's state; None where the system does not tell."""
    info, symbol = _Info(), ctypes.POINTER(_Symbol)()
    try:
        state = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        look_up = ctypes.PyDLL(None).dladdr1  # glibc has it
    except (AttributeError, ValueError):
        return None
    at, out = ctypes.c_void_p(state), ctypes.byref
    found = look_up(at, out(info), out(symbol), _WITH_THE_SYMBOL)
    if not found or not symbol or info.address != state or not symbol.contents.size:
        return None
    return range(state, state + symbol.contents.size)
