"""Calls whose CUDA kernels wait for the device by themselves, where no observer can see it. Pure.

From torch's own sources (`aten/src/ATen/native`): a value is copied to the host and checked there,
below the level at which calls can be watched. On a CPU nothing of it shows, so it is a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ALWAYS = {
    "_linalg_check_errors": "the result of the factorisation is checked on the host",
    "linalg_eig": "eigenvalues of a general matrix are computed with the host's help",
    "_linalg_eigvals": "eigenvalues of a general matrix are computed with the host's help",
    "linalg_lstsq": "the result of the factorisation is checked on the host",
    "embedding_renorm_": "max_norm= looks the indices up on the host",
    "_ctc_loss": "lengths are read by the host",
    "unique_consecutive": "the number of runs is read by the host",
}
_INSTEAD = {
    "_linalg_check_errors": "the _ex variant (torch.linalg.inv_ex, cholesky_ex) leaves the check "
    "to you",
    "normal": "mean + std * torch.randn_like(mean) draws alike, without a wait",
    "histc": "give min= and max=",
    "embedding_renorm_": "normalise the weights once, outside of the step",
}


def hidden_wait(name: str, overload: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why the host waits inside this call, or an empty string.

    Args:
        name: Such as "normal".
        overload: Such as "Tensor_Tensor".
    """
    if name == "normal" and overload.endswith("Tensor"):
        return "the standard deviations are checked on the host"
    if name == "histc" and not (args[2:] or kwargs.keys() & {"min", "max"}):
        return "the range is read by the host"
    return _ALWAYS.get(name, "")


def instead_of_hidden(op: str) -> str:
    """Return what to write instead, or an empty string."""
    return next((advice for name, advice in _INSTEAD.items() if name in op), "")
