"""The PCIe link of a GPU, and of the ports above it, from /sys/bus/pci.

A GPU that could do generation 5 behind a port that cannot is as slow as the port, so the whole way
up to the root is looked at. At rest links drop to generation 1: a reading counts only under load.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ostinato.doctor.collect.host.look import Look
from ostinato.doctor.host_evidence import Link

_GT_PER_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_SPEED = re.compile(r"([\d.]+)\s*GT/s")
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NO_WIDTH = (0, 255)
"""What a port reports that has no link."""


def short_address(bus_id: str) -> str:
    """Return "0000:17:00.0" for NVML's "00000000:17:00.0"."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def read_link(look: Look, bus_id: str) -> Link | None:
    """Return the link of the device at `bus_id`, limited by what stands above it."""
    folder = f"/sys/bus/pci/devices/{short_address(bus_id)}"
    if not look.exists(folder):
        look.note(f"the PCIe link of {bus_id}", f"{folder} is not there")
        return None
    link = _link(look, folder)
    for port in _ports_above(look, folder):
        above = _link(look, f"/sys/bus/pci/devices/{port}")
        link = _limited(link, above, port)
    return link


def read_numa_node(look: Look, bus_id: str) -> int | None:
    """Return the node that a device says it is on; None where the platform does not tell."""
    node = look.number(f"/sys/bus/pci/devices/{short_address(bus_id)}/numa_node")
    return None if node is None or node < 0 else node


def _ports_above(look: Look, folder: str) -> list[str]:
    """Return the bridges from the device upwards, from where its link leads."""
    path = look.target(folder) or ""
    return list(reversed(_ADDRESS.findall(path.lower())[:-1]))


def _link(look: Look, folder: str) -> Link:
    return Link(
        generation=_generation(look.text(f"{folder}/current_link_speed")),
        width=_width(look.number(f"{folder}/current_link_width")),
        max_generation=_generation(look.text(f"{folder}/max_link_speed")),
        max_width=_width(look.number(f"{folder}/max_link_width")),
    )


def _limited(link: Link, above: Link, port: str) -> Link:
    """Lower what the link can do to what the port above it can do."""
    slower = _less(above.max_generation, link.max_generation)
    narrower = _less(above.max_width, link.max_width)
    if not slower and not narrower:
        return link
    words = f"the port {port} above it does generation {above.max_generation} x{above.max_width}"
    return replace(
        link,
        max_generation=above.max_generation if slower else link.max_generation,
        max_width=above.max_width if narrower else link.max_width,
        upstream=link.upstream or words,
    )


def _less(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other


def _generation(text: str | None) -> int | None:
    found = _SPEED.search(text or "")
    return _GT_PER_S.get(float(found[1])) if found else None


def _width(number: int | None) -> int | None:
    return None if number in _NO_WIDTH else number
