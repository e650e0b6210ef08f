"""The benchmarks: this runtime beside what people use today, in one run on one machine.

`run_graphs` builds every contender for every model, times them in turns and answers each claim that
is made about speed with the number measured, met or not. What computes (`results`, `claims`,
`tables`, `trace`) stands apart from what runs (`contenders`, `timing`, `generation`, `traffic`).
Called by `ostinato bench` alone.

A name is imported when it is first used: the processes that send load to a server know no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.bench.claims import Claim, Verdict, claims_of
    from ostinato.bench.options import GraphsOptions, read_options
    from ostinato.bench.results import Contender, GenerationRow, GraphsResult, Row, TrafficRow
    from ostinato.bench.run import run_graphs, to_dict
    from ostinato.bench.tables import as_text

__all__ = [
    "Claim",
    "Contender",
    "GenerationRow",
    "GraphsOptions",
    "GraphsResult",
    "Row",
    "TrafficRow",
    "Verdict",
    "as_text",
    "claims_of",
    "read_options",
    "run_graphs",
    "to_dict",
]

_HOMES = {
    "Claim": "claims",
    "Contender": "results",
    "GenerationRow": "results",
    "GraphsOptions": "options",
    "GraphsResult": "results",
    "Row": "results",
    "TrafficRow": "results",
    "Verdict": "claims",
    "as_text": "tables",
    "claims_of": "claims",
    "read_options": "options",
    "run_graphs": "run",
    "to_dict": "run",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value
