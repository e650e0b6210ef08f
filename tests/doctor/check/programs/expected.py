"""What a real capture says of a program, and what the tape says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """The verdicts on one program.

    Attributes:
        reasons: Why the runtime refuses to record it on a GPU; more than one where it may name
            either. Empty: it can be recorded.
        raw: Whether a bare `torch.cuda.graph` round the call succeeds. It does for what only a
            replay would get wrong, such as a counter in Python.
        tape: What the tape's runner says on a CPU, where that is not `reasons`; "" where the tape
            does not apply, because what stands in the way happens between host and GPU.
        gpus: How many it needs.
        assumed: Whether the check has to assume a value to see all of it.
    """

    reasons: tuple[str, ...] = ()
    raw: bool = True
    tape: str | None = None
    gpus: int = 1
    assumed: bool = False
