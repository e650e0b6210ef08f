"""Workers that each start as many threads as there are cores."""

from __future__ import annotations

from ostinato.doctor.lint.facts import Scope
from ostinato.doctor.lint.operations import known
from ostinato.doctor.lint.rules.event import Event
from ostinato.doctor.lint.scene import Scene

_POOLS = frozenset(
    {
        "multiprocessing.Pool",
        "torch.multiprocessing.Pool",
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.ThreadPoolExecutor",
        "multiprocessing.pool.ThreadPool",
    }
)


def called(scene: Scene, event: Event) -> None:
    """See a call."""
    if event.function in ("torch.set_num_threads", "torch.set_num_interop_threads"):
        scene.module.sets_threads = True
        if known(event.first) not in (1, 2):
            fact = "every worker asks for its own threads: together more than there are cores"
            scene.sight(505, Scope.WORKER, event.node, fact)
    elif event.function == "torch.utils.data.DataLoader":
        workers = event.keyword("num_workers")
        if workers is not None and known(workers) != 0:
            fact = "every worker starts loader processes of its own"
            scene.sight(505, Scope.WORKER, event.node, fact)
    elif event.function in _POOLS:
        _pool(scene, event)


def _pool(scene: Scene, event: Event) -> None:
    """Note a pool: `project.py` knows whether its workers run a model on the CPU."""
    size = event.first if event.args else event.keyword("max_workers")
    if size is None:
        size = event.keyword("processes")
    if size is not None and known(size) == 1:
        return
    fact = "its workers run a model, each with as many threads as there are cores"
    scene.sight(505, Scope.WORKER_POOL, event.node, fact)
