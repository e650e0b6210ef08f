"""NUMA: the nodes, and on which of them the pages of one process lie.

`/proc/<pid>/numa_maps` counts the pages of every mapping by node ("N0=12 N1=3") in pages of
`kernelpagesize_kB`. That is where memory is, not where a policy asked for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ostinato.doctor.collect.host.look import Look, fields_of, listed
from ostinato.doctor.host_evidence import NumaNode

_FOLDER = "/sys/devices/system/node"
_PAGES = re.compile(r"^N(\d+)=(\d+)$")
_PAGE_SIZE = re.compile(r"\bkernelpagesize_kB=(\d+)")


def read_nodes(look: Look, pid: str) -> tuple[NumaNode, ...]:
    """Return the nodes, with the bytes of one process on each."""
    numbers = listed(look.text(f"{_FOLDER}/online"))
    if not numbers:
        names = [name[4:] for name in look.names(_FOLDER) if name.startswith("node")]
        numbers = tuple(sorted(int(name) for name in names if name.isdigit()))
    if not numbers:
        look.note("NUMA nodes", f"{_FOLDER} cannot be read")
        return ()
    maps = look.text(f"/proc/{pid}/numa_maps", f"on which node the memory of process {pid} lies")
    placed = None if maps is None else bytes_by_node(maps.splitlines())
    return tuple(_node(look, number, placed) for number in numbers)


def bytes_by_node(lines: Iterable[str]) -> dict[int, int]:
    """Add up the bytes on each node over the lines of numa_maps."""
    found: Counter[int] = Counter()
    for line in lines:
        size = _PAGE_SIZE.search(line)
        page_bytes = int(size[1]) << 10 if size else 4096
        for word in line.split():
            if pages := _PAGES.match(word):
                found[int(pages[1])] += int(pages[2]) * page_bytes
    return dict(found)


def read_balancing(look: Look) -> bool | None:
    """Return whether the kernel moves pages between nodes by itself."""
    value = look.number("/proc/sys/kernel/numa_balancing")
    return None if value is None else value != 0


def _node(look: Look, number: int, placed: dict[int, int] | None) -> NumaNode:
    info = fields_of(look.text(f"{_FOLDER}/node{number}/meminfo"))
    sizes = {name.split()[-1]: value for name, value in info.items() if name}
    return NumaNode(
        node=number,
        cpus=listed(look.text(f"{_FOLDER}/node{number}/cpulist")),
        memory_bytes=_kilobytes(sizes.get("MemTotal")),
        free_bytes=_kilobytes(sizes.get("MemFree")),
        process_bytes=None if placed is None else placed.get(number, 0),
    )


def _kilobytes(text: str | None) -> int:
    number = (text or "").split()[:1]
    return int(number[0]) << 10 if number and number[0].isdigit() else 0
