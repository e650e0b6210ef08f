"""Which attention backend ran, for which shapes, from calls of torch in a trace. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ostinato.doctor.graph_use import AttentionUse
from ostinato.doctor.trace.calls import ATTENTION

_MOST_KINDS = 1000
_DTYPES = {"c10::Half": "float16", "c10::BFloat16": "bfloat16", "float": "float32",
           "double": "float64"}  # fmt: skip


@dataclass(slots=True)
class AttentionCounts:
    """Calls by backend, shapes and dtype; torch notes shapes where record_shapes was on."""

    _uses: dict[tuple[Any, ...], AttentionUse]

    def __init__(self) -> None:
        self._uses = {}

    def add(self, name: str, us: float, args: Mapping[str, Any]) -> None:
        """Count one call, if the trace says what it was given."""
        dims = args.get("Input Dims")
        types = args.get("Input type") or args.get("Input types")
        if not isinstance(dims, list) or len(dims) < 3 or not all(map(_is_shape, dims[:3])):
            return
        query, key, value = (tuple(int(size) for size in shape) for shape in dims[:3])
        dtype = str(types[0]) if isinstance(types, list) and types else ""
        identity = (ATTENTION[name], query, key, value[-1], dtype)
        known = self._uses.get(identity)
        if known is None:
            if len(self._uses) >= _MOST_KINDS:
                return
            mask = dims[3] if len(dims) > 3 and _is_shape(dims[3]) else None
            known = AttentionUse(
                place=None,
                count=0,
                query=query,
                key=key,
                value_size=value[-1],
                dtype=_DTYPES.get(dtype, dtype),
                device="",
                capability="",
                backend=ATTENTION[name],
                mask=None if mask is None else tuple(int(size) for size in mask),
            )
        self._uses[identity] = replace(known, count=known.count + 1, us=known.us + us)

    def uses(self, head: Mapping[str, Any], has_device: bool) -> tuple[AttentionUse, ...]:
        """Return them, with the device that the head of the trace names."""
        devices = head.get("deviceProperties")
        first = devices[0] if isinstance(devices, list) and devices else {}
        capability = ""
        if has_device and isinstance(first, dict) and "computeMajor" in first:
            capability = f"{first['computeMajor']}.{first.get('computeMinor', 0)}"
        device = "cuda" if has_device else "cpu"
        return tuple(
            replace(use, device=device, capability=capability) for use in self._uses.values()
        )


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) >= 2 and all(isinstance(size, int) for size in value)
    )
