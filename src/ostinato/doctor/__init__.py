"""Why a program is slow: which line, what it costs, and what to try.

- `catalog`: every finding's code, name and words.
- `evidence`: what was recorded, in plain values; `collect` writes it, and so does a saved trace.
- `probes`: one pure function for each finding, from evidence to a finding or an abstention.
- `diagnose`, `report`, `render`: all probes, ranked by cost, in five formats.
- `lint` finds the same from source alone; `check` proves what can be recorded without a GPU.

`with ostinato.doctor.watch(): …` watches a block, and `with ostinato.doctor.step(): …` marks one
step of it. Importing this package never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.doctor.watching import Watch, step, watch

__all__ = ["Watch", "step", "watch"]

_HOMES = dict.fromkeys(__all__, "ostinato.doctor.watching")


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
