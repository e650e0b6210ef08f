"""How many nodes a captured graph has, asked of the driver.

`ctypes` on libcuda, which every machine with a driver has: the package cuda-bindings is optional.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

_GRAPH, _EMPTY = 4, 5  # CUgraphNodeType
_SUCCESS = 0


@dataclass(frozen=True, slots=True)
class Census:
    """What a graph is made of.

    Attributes:
        working: Nodes that do something at each replay (kernels, copies, fills, host calls).
        nested: Nodes that are graphs themselves: something inside replayed a graph of its own.
    """

    working: int
    nested: int


def census(raw_graph: int) -> Census | None:
    """Count the nodes of a `cudaGraph_t`, or return None where the driver cannot be asked."""
    driver = _driver()
    if driver is None:
        return None
    count = ctypes.c_size_t(0)
    graph = ctypes.c_void_p(raw_graph)
    if driver.cuGraphGetNodes(graph, None, ctypes.byref(count)) != _SUCCESS:
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)) != _SUCCESS:
        return None
    kinds = [_kind(driver, node) for node in nodes]
    return Census(working=len(kinds) - kinds.count(_EMPTY), nested=kinds.count(_GRAPH))


def _kind(driver: ctypes.CDLL, node: int | None) -> int:
    kind = ctypes.c_int(-1)
    driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
    return kind.value


@cache
def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
