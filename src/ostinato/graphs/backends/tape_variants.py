"""How an aten call can be made into memory that is given to it.

Asked of torch, not listed: the variant that writes a given tensor is the overload with the same
arguments plus `out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from ostinato.graphs.aten_calls import base_name

_FACTORY_OPTIONS = frozenset(("dtype", "layout", "device", "pin_memory", "requires_grad"))
_UNINITIALISED = frozenset(
    ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
)
_ZEROS = frozenset(("zeros", "zeros_like", "new_zeros"))
_PLAIN_COPIES = frozenset(("clone", "_to_copy"))


def leaves_memory_as_it_is(func: OpOverload) -> bool:
    """Whether the call only allocates, so that given memory makes it superfluous."""
    return func.namespace == "aten" and base_name(func) in _UNINITIALISED


def is_zeros(func: OpOverload) -> bool:
    """Whether the call makes zeros, which `zero_` does to given memory."""
    return func.namespace == "aten" and base_name(func) in _ZEROS


def is_plain_copy(func: OpOverload) -> bool:
    """Whether the call copies its first argument, which `copy_` does into given memory."""
    return func.namespace == "aten" and base_name(func) in _PLAIN_COPIES


@dataclass(frozen=True, slots=True)
class OutVariant:
    """An overload that writes its results into given tensors.

    Attributes:
        outs: Its keywords for them, in the order of the results.
        is_factory: It takes no dtype or device, because the given tensor has them.
    """

    func: OpOverload
    outs: tuple[str, ...]
    is_factory: bool

    def kwargs(self, recorded: dict[str, Any]) -> dict[str, Any]:
        """Return the recorded keywords that this overload takes too."""
        if not self.is_factory:
            return recorded
        return {name: v for name, v in recorded.items() if name not in _FACTORY_OPTIONS}


@cache
def out_variant(func: OpOverload) -> OutVariant | None:
    """Return the overload that fills given memory.

    None if there is none, or only a generated one that computes elsewhere and copies.
    """
    if func.namespace != "aten":
        return None
    plain = [(a.name, str(a.type)) for a in func._schema.arguments]
    shorn = [pair for pair in plain if pair[0] not in _FACTORY_OPTIONS]
    packet = getattr(torch.ops.aten, base_name(func))
    for name in packet.overloads():
        candidate = getattr(packet, name)
        outs = tuple(a.name for a in candidate._schema.arguments if a.is_out)
        rest = [(a.name, str(a.type)) for a in candidate._schema.arguments if not a.is_out]
        if len(outs) != len(func._schema.returns) or rest not in (plain, shorn):
            continue
        variant = OutVariant(candidate, outs, rest != plain)
        if outs and _writes_in_place(variant):
            return variant
    return None


def _writes_in_place(variant: OutVariant) -> bool:
    if torch._C._dispatch_has_kernel_for_dispatch_key(variant.func.name(), "CPU"):
        return True
    arguments = variant.func._schema.arguments
    return variant.is_factory and not any(
        "Tensor" in str(a.type) for a in arguments if not a.is_out
    )
