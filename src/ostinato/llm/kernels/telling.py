"""Say which tensors a kernel writes, to whoever watches the calls of torch.

A recording puts back what its trial runs write, and sees that from the calls of torch. A kernel
started by hand is no such call. So before one that writes what outlives the step, this operator is
called: by its schema it changes its arguments, and it does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_NAMESPACE = "ostinato_llm"


def tell_writes(tensors: Sequence[Tensor]) -> None:
    """Tell that these tensors are about to be written.

    Capture:
        Safe; starts no kernel.
    """
    _library()
    torch.ops.ostinato_llm.writes.default(list(tensors))


@cache  # an operator is there as long as its library
def _library() -> Any:
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    library.define("writes(Tensor(a!)[] tensors) -> ()")
    for key in ("CPU", "CUDA", "Meta"):
        library.impl("writes", _nothing, key)
    return library


def _nothing(_tensors: Sequence[Tensor]) -> None:
    """The kernel does it."""
