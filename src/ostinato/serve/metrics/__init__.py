"""What the service counts, in each process and over all of them.

`Metrics` is told what happened; `merge` adds the snapshots of all processes up to the text that
/metrics answers; `names` is the one list of metrics.
"""

from ostinato.serve.metrics.merging import Family, add_up, merge, render, retire
from ostinato.serve.metrics.process import Aborted, Metrics, Shed

__all__ = ["Aborted", "Family", "Metrics", "Shed", "add_up", "merge", "render", "retire"]
