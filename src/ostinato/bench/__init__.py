"""The benchmarks: this runtime beside what people use today, in one run on one machine.

`run_graphs` builds every contender for every model, times them in turns and answers each claim that
is made about speed with the number measured, met or not. What computes (`results`, `claims`,
`tables`, `trace`) stands apart from what runs (`contenders`, `timing`, `generation`, `traffic`).
Called by `ostinato bench` alone.
"""

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
