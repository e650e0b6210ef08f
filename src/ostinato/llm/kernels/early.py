"""Kernels that begin before the one ahead of them has ended (programmatic dependent launch).

A small kernel spends its first microsecond on starting and on asking for its weights, and none of
that needs the result of the kernel before. So a kernel is launched while the last one still runs,
asks for its weights, and waits only then. On one H200 this is worth 14 to 19 % of a decode step
(`docs/decisions/0014-decode-kernels.md`).

What keeps it right, and what every kernel launched so must do:

- Wait, whether it needs to or not: then a kernel that has waited knows that all kernels before it
  have ended, not only the last one.
- Before the wait read only what no kernel of the step writes, such as weights. A kernel may read
  more there only if the one ahead of it lets others begin after its own wait: all that came before
  that one is complete then.
- Write only after the wait.

Needs compute capability 9.0; Triton's interpreter knows none of it, so all stands behind EARLY.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_OLDEST = (9, 0)


def can_begin_early(device: torch.device) -> bool:
    """Return whether kernels on this device can be launched so."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _OLDEST


def launching(*, is_early: bool) -> dict[str, Any]:
    """Return the launch options, for a kernel that is compiled with EARLY=is_early."""
    return {"launch_pdl": True} if is_early else {}


@triton.jit
def wait_for_previous(EARLY: tl.constexpr) -> None:
    """Wait until all kernels before this one have ended and what they wrote can be read."""
    if EARLY:
        gdc_wait()


@triton.jit
def let_next_begin(EARLY: tl.constexpr) -> None:
    """Let the next kernel begin, once every program of this one has come here."""
    if EARLY:
        gdc_launch_dependents()
