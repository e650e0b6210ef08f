"""A little work on a GPU through the driver's own library: copies, fills, nothing else.

What a link and a clock do shows only under load, and torch is too heavy for a look at a machine.
`libcuda` is there wherever a GPU can be used; a few calls of it are enough.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from time import perf_counter

_NAMES = ("libcuda.so.1", "libcuda.so")


class DriverRefused(Exception):
    """The driver cannot be loaded, or said no."""


class Worker:
    """A context on one GPU with one pinned buffer and one on the device.

    Args:
        nbytes: Size of both.
    """

    def __init__(self, library: ctypes.CDLL, nbytes: int) -> None:
        self._library = library
        self._nbytes = nbytes
        self._host = c_void_p()
        self._device = c_uint64()
        self._call("cuMemAllocHost_v2", byref(self._host), c_size_t(nbytes))
        self._call("cuMemAlloc_v2", byref(self._device), c_size_t(nbytes))

    def upload_gbs(self) -> float:
        """Copy from pinned memory to the device once; return gigabytes per second."""
        return self._timed("cuMemcpyHtoDAsync_v2", self._device, self._host)

    def download_gbs(self) -> float:
        """Copy back once."""
        return self._timed("cuMemcpyDtoHAsync_v2", self._host, self._device)

    def fill_us(self, nbytes: int) -> float:
        """Fill device memory by a kernel and wait for it; return microseconds."""
        began = perf_counter()
        words = c_size_t(min(nbytes, self._nbytes) // 4)
        self._call("cuMemsetD32Async", self._device, c_uint(0), words, c_void_p())
        self._call("cuStreamSynchronize", c_void_p())
        return (perf_counter() - began) * 1e6

    def close(self) -> None:
        """Give the memory back."""
        self._library.cuMemFree_v2(self._device)
        self._library.cuMemFreeHost(self._host)

    def _timed(self, name: str, target: object, source: object) -> float:
        began = perf_counter()
        self._call(name, target, source, c_size_t(self._nbytes), c_void_p())
        self._call("cuStreamSynchronize", c_void_p())
        return self._nbytes / (perf_counter() - began) / 1e9

    def _call(self, name: str, *args: object) -> None:
        _call(self._library, name, *args)


@contextmanager
def working_on(bus_id: str, nbytes: int) -> Iterator[Worker]:
    """Hold a context on the GPU at `bus_id` for the block.

    Raises:
        DriverRefused: There is no driver, or it refuses: no such GPU, no memory, no permission.
    """
    library = _library()
    _call(library, "cuInit", c_uint(0))
    device = c_int()
    _call(library, "cuDeviceGetByPCIBusId", byref(device), bus_id.encode())
    context = c_void_p()
    # The primary context is the one that torch uses as well, so that none is made beside it.
    _call(library, "cuDevicePrimaryCtxRetain", byref(context), device)
    try:
        _call(library, "cuCtxPushCurrent_v2", context)
        try:
            worker = Worker(library, nbytes)
            try:
                yield worker
            finally:
                worker.close()
        finally:
            library.cuCtxPopCurrent_v2(byref(c_void_p()))
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)


def _library() -> ctypes.CDLL:
    for name in _NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.cuGetErrorName.argtypes = [c_int, POINTER(ctypes.c_char_p)]
        return library
    raise DriverRefused("libcuda.so.1 cannot be loaded")


def _call(library: ctypes.CDLL, name: str, *args: object) -> None:
    status = getattr(library, name)(*args)
    if status:
        said = ctypes.c_char_p()
        library.cuGetErrorName(status, byref(said))
        raise DriverRefused(f"{name} said {(said.value or b'').decode() or status}")
