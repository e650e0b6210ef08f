"""The engine's decode loop, measured: time per token and to the first one, beside the memory floor.

Dummy weights at the real dimensions of three models, prompts of 128 tokens, 128 new ones, greedy,
as many requests at once as the batch says. What is timed is what a user's program does: requests
are submitted to a running engine and answers are awaited; paging, sampling and stop tests are in
it.
`rows` and `judging` are arithmetic; `ours`, `peers` and `bandwidth` run. `plans` measures how a
model's layers are best computed here.
"""

from ostinato.bench.decode.judging import claims_of, regressions
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.decode.plans import PlanOptions, plans_as_text, run_plans
from ostinato.bench.decode.rows import DecodeResult, DecodeRow, read_result
from ostinato.bench.decode.run import DecodeOptions, run_decode
from ostinato.bench.decode.tables import as_text

__all__ = [
    "MODELS",
    "TINY",
    "DecodeOptions",
    "DecodeResult",
    "DecodeRow",
    "PlanOptions",
    "as_text",
    "claims_of",
    "plans_as_text",
    "read_result",
    "regressions",
    "run_decode",
    "run_plans",
]
