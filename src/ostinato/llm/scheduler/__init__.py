"""Who runs in the next launch: admission, chunked prefill, pages, preemption. Arithmetic only.

`Scheduler` is the facade that the engine calls: `submit`, `cancel`, `plan`, `advance`. A plan is
made by `planning` on the books that `ledger` keeps; `waiting`, `rows` and `holdings` are its
queue, its rows of the resident state and its pages; `progress` is how far one request has come.
"""

from ostinato.llm.scheduler.facade import Counts, Scheduler
from ostinato.llm.scheduler.plan import Chunk, Plan, Seat, Stretch

__all__ = ["Chunk", "Counts", "Plan", "Scheduler", "Seat", "Stretch"]
