"""Record and replay of any callable: the heart, with no word of language models in it.

Entered through here. `runner.py` holds the path of a call, `capture.py` the making of a recording;
what decides (`signature`, `buckets`, `cache`, `reasons`) is pure and stands apart from what acts.
"""

from ostinato.graphs.backends.ending import Bell
from ostinato.graphs.buckets import Buckets
from ostinato.graphs.decision import Decision, OstinatoWarning, Outcome
from ostinato.graphs.lease import Lease
from ostinato.graphs.loop import Loop
from ostinato.graphs.reasons import Reason
from ostinato.graphs.report import Report
from ostinato.graphs.runner import Runner
from ostinato.graphs.wrapping import graphed

__all__ = [
    "Bell",
    "Buckets",
    "Decision",
    "Lease",
    "Loop",
    "OstinatoWarning",
    "Outcome",
    "Reason",
    "Report",
    "Runner",
    "graphed",
]
