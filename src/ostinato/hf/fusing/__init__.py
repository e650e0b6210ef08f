"""Fewer, larger kernels in the recorded decode step, with the same bits.

A step of a small model is a thousand kernels of some two microseconds each, and most of them do one
sum or product. Here a step is listened to once, call by call (`listen`), runs of such calls are
found in what was heard (`stream`, `norms`, `turns`, `gates`, `plan`), each is tried against the
plain calls bit by bit (`settling`), and what proved equal is recorded as one kernel (`play`,
`kernels`).

Nothing is patched: the model runs its own code, and only the calls that this thread makes while it
records are answered otherwise.
"""

from ostinato.hf.fusing.compiled import compiled_part
from ostinato.hf.fusing.plan import Plan
from ostinato.hf.fusing.play import FusedRun, Strayed
from ostinato.hf.fusing.settling import Fusion, settle

__all__ = ["FusedRun", "Fusion", "Plan", "Strayed", "compiled_part", "settle"]
